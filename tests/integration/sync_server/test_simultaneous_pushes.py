"""Eight peers that push at the same instant, a thousand rounds long; and what the lock is for.

The services are called without the wire: the race is between their calls, and TLS would only slow
it down.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from builders.raw_peer import MANIFEST, delta, parts, zeros
from builders.sync_server import JOB_UID, job_settings
from safetensors.numpy import load_file
from spes_proto.v1 import control_pb2, sync_pb2
from spes_sync.disk import Disk
from spes_sync.journal import Journal
from spes_sync.rounds import Phase
from spes_sync.rounds import events as ev
from spes_sync.server.admission import Admission, Caller
from spes_sync.server.commits import Commits
from spes_sync.server.engine import Clocks, Engine
from spes_sync.server.pushing import Pushes
from spes_sync.server.threads import Threads
from spes_sync.tokens import sha256
from spes_sync.volume import Volume

NUM_PEERS = 8
NUM_ROUNDS = 1000
PEERS = [f"p{number}.0" for number in range(NUM_PEERS)]


class Load:
    """An engine with peers that are live, joined and placed; expert e belongs to peer e."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        volume = Volume.hold(directory, disk)
        clocks = Clocks(now=time.monotonic, unix=time.time)
        self.threads = Threads(4, "load")
        self.journal = Journal(directory / "journal.jsonl")
        self.engine = Engine(volume, self.journal, self.threads, clocks)
        self.admission = Admission(self.engine)
        self.pushes = Pushes(self.engine, Commits(self.engine))
        self.callers: dict[str, Caller] = {}

    async def begin(self, peers: list[str]) -> None:
        tokens = {peer: f"{index:016x}.secret" for index, peer in enumerate(peers)}
        hashes = [
            control_pb2.TokenHash(id=t[:16], peer=p, sha256=sha256(t), expires_in_seconds=3600)
            for p, t in tokens.items()
        ]
        wanted = control_pb2.SyncPlan(
            job_uid=JOB_UID,
            incarnation=1,
            settings_json=job_settings(training__maxTokens=10**9),
            seed_peer=peers[0],
            add_tokens=hashes,
        )
        await self.admission.apply_plan(wanted)
        for peer, token in tokens.items():
            request = sync_pb2.JoinRequest(peer=peer, token=token, protocol=1)
            reply = await self.admission.join(request, "ipv4:127.0.0.1")
            self.callers[peer] = await self.admission.caller(reply.session_key)
        assert (await self.push(peers[0], zeros(), seed=True)).verdict == sync_pb2.VERIFIED
        for caller in self.callers.values():
            await self.admission.caught_up(caller, sync_pb2.CaughtUp(version=0))
        wanted.plan.CopyFrom(
            sync_pb2.Plan(
                epoch=1,
                peers=peers,
                owners=[
                    sync_pb2.Owner(expert=e, peer=p, granted_epoch=1)
                    for e, p in enumerate(peers[: len(MANIFEST.experts)])
                ],
            )
        )
        await self.admission.apply_plan(wanted)

    @property
    def state(self):
        return self.engine.run.state

    async def push(
        self, peer: str, values: dict[str, np.ndarray], *, seed: bool = False
    ) -> sync_pb2.PushReply:
        state = self.engine.run.state
        tensors = [MANIFEST[name] for name in sorted(values)]
        key = sync_pb2.PushKey(
            job_uid=JOB_UID,
            incarnation=1,
            peer=peer,
            round=state.round_number,
            base_version=state.version,
            epoch=state.active.epoch,
            part=sync_pb2.ALL,
        )
        header = sync_pb2.PushHeader(
            key=key,
            kind=sync_pb2.SEED if seed else sync_pb2.DELTA,
            codec=sync_pb2.FP32,
            total_bytes=sum(tensor.num_bytes for tensor in tensors),
            steps=2,
            tokens=32,
            tensors=[tensor.to_proto() for tensor in tensors],
        )
        return await self.pushes.receive(self.callers[peer], stream(parts(header, values)))

    async def all_push(self, value: float) -> list[sync_pb2.PushReply]:
        """Everyone at once; expert owners bring their expert too."""
        return await asyncio.gather(
            *(
                self.push(peer, delta([index] if index < 4 else [], value + index))
                for index, peer in enumerate(self.callers)
            )
        )

    async def committed(self, version: int) -> None:
        async with asyncio.timeout(20):
            while self.state.version < version or self.state.phase is not Phase.OPEN:
                await self.engine.changed_since(self.engine.changes)
        for peer in self.callers:
            await self.engine.post(ev.Heard(peer=peer, version=version))

    async def end(self) -> None:
        await self.engine.close()
        self.threads.close()
        self.journal.close()
        self.engine.volume.release()


async def stream(every) -> AsyncIterator[sync_pb2.PushPart]:
    for part in every:
        yield part


@asynccontextmanager
async def load(directory: Path, peers: list[str], disk: Disk) -> AsyncIterator[Load]:
    running = Load(directory, disk)
    try:
        await running.begin(peers)
        yield running
    finally:
        await running.end()


@pytest.mark.timeout(300)  # half a minute on two free cores
def test_a_thousand_rounds_of_eight_simultaneous_pushes(tmp_path):
    async def run() -> None:
        disk = Disk(fsync=lambda _: None)
        async with load(tmp_path, PEERS, disk) as running:
            for number in range(1, NUM_ROUNDS + 1):
                replies = await running.all_push(1.0)
                assert {reply.verdict for reply in replies} == {sync_pb2.VERIFIED}, number
                await running.committed(number)
            assert running.state.version == NUM_ROUNDS
            assert running.state.global_tokens == NUM_ROUNDS * NUM_PEERS * 32
            model = load_file(running.engine.volume.versions.path(NUM_ROUNDS) / "model.safetensors")
            assert np.all(model["embedding.weight"] == NUM_ROUNDS * 4.5)
            for expert in range(4):
                assert np.all(model[f"layers.0.experts.{expert}.w1"] == NUM_ROUNDS * (1 + expert))

    asyncio.run(run())


# What the lock is for: a push that is being kept, and its retransmission.


class NoLock:
    """Lets everyone in."""

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *raised: object) -> None:
        pass


class Meeting:
    """Keeps the first push in its spool until a second is there too, or does not come."""

    def __init__(self) -> None:
        self.first = threading.Event()
        self.second = threading.Event()

    def reached(self, point: str) -> None:
        if point == "spool":
            if self.first.is_set():
                self.second.set()
            self.first.set()
            self.second.wait(0.3)


async def push_twice_at_once(directory: Path, lock) -> list[sync_pb2.PushReply]:
    meeting = Meeting()
    disk = Disk(reached=meeting.reached, fsync=lambda _: None)
    async with load(directory, PEERS[:2], disk) as running:
        if lock is not None:
            running.engine.lock = lock
        values = delta([0], 1.0)
        sent = asyncio.create_task(running.push(PEERS[0], values))
        await asyncio.to_thread(meeting.first.wait, 10)
        again = asyncio.create_task(running.push(PEERS[0], values))
        replies = await asyncio.gather(sent, again)
        assert len(running.state.round.pushes[PEERS[0]]) == 1
        return replies


def test_push_and_its_retransmission_at_once_count_once(tmp_path):
    replies = asyncio.run(push_twice_at_once(tmp_path, None))
    assert [reply.verdict for reply in replies] == [sync_pb2.VERIFIED, sync_pb2.ALREADY_HAVE]


def test_without_the_lock_they_would_count_twice(tmp_path):
    with pytest.raises(AssertionError, match="nothing counts twice"):
        asyncio.run(push_twice_at_once(tmp_path, NoLock()))
