"""A sync server in this process, on free ports, and a hub that drives it.

`running_server(directory)` serves from a thread of its own, so blocking clients can talk to it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep, time

import grpc
from builders.tls import TestTls, make_tls
from spes_proto.v1 import control_pb2, control_pb2_grpc, sync_pb2
from spes_sync.disk import Disk
from spes_sync.plan import PeerId
from spes_sync.rounds import Peer
from spes_sync.server.engine import Clocks
from spes_sync.server.server import Edges, Ports, SyncServer, Where
from spes_sync.server.tls import TlsFiles

JOB_UID = "0b5c1d2e-job"
DEADLINE_SECONDS = 20.0
_UNKNOWN = Peer(heard_at=0.0)


def eventually(
    condition: Callable[[], object], what: str = "condition", *, seconds: float = DEADLINE_SECONDS
) -> None:
    """Poll until a condition holds; fail with its name after the deadline."""
    until = monotonic() + seconds
    while not condition():
        if monotonic() > until:
            raise AssertionError(f"never happened: {what}")
        sleep(0.01)


def job_settings(**changes: object) -> str:
    """Canonical settings of a small job; `sync__quorum=0.5` changes spec.sync.quorum."""
    spec: dict[str, object] = {
        "model": {"preset": "moe-tiny"},
        "data": {
            "sources": [{"builtin": "python-stdlib"}],
            "sequenceTokens": 8,
            "split": "Disjoint",
        },
        "training": {
            "maxTokens": 1_000_000,
            "batchTokens": 16,
            "optimizer": {"learningRate": 0.1},
            "precision": "FP32",
        },
        "members": {"min": 1},
        "sync": {"everySteps": 2, "timeoutSeconds": 60},
        "reassignment": {"unreachableAfterSeconds": 20, "reassignAfterSeconds": 60},
        "checkpoint": {"keepLast": 2},
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        at = spec
        for parent in parents:
            at = at.setdefault(parent, {})  # type: ignore[assignment]
        at[last] = value
    return json.dumps(spec, sort_keys=True, separators=(",", ":"))


@dataclass
class Hub:
    """What the control plane does: plans with growing epochs, tokens, Watch."""

    stub: control_pb2_grpc.ControlStub
    settings_json: str = field(default_factory=job_settings)
    job_uid: str = JOB_UID
    incarnation: int = 1
    epoch: int = 0
    granted: dict[int, tuple[str, int]] = field(default_factory=dict)
    tokens: list[control_pb2.TokenHash] = field(default_factory=list)

    @property
    def replicated(self) -> bool:
        """Whether the job's algorithm has every peer train everything."""
        algorithm = json.loads(self.settings_json).get("algorithm", {})
        return algorithm.get("name", "SPES") != "SPES"

    def invite(self, peer: str, *, expires_in: int = 3600) -> str:
        """A new one-time token for a peer; the server learns of it with the next plan."""
        token_id = secrets.token_hex(8)
        text = f"{token_id}.{secrets.token_urlsafe(32)}"
        self.tokens.append(
            control_pb2.TokenHash(
                id=token_id,
                peer=peer,
                sha256=hashlib.sha256(text.encode()).hexdigest(),
                expires_in_seconds=expires_in,
            )
        )
        return text

    def apply(
        self, owners: Mapping[int, str] | None = None, *, peers=None, seed_peer: str = ""
    ) -> control_pb2.ApplyReply:
        """Apply a plan with these owners; without any, the plan before any placement."""
        if owners is not None:
            self.epoch += 1
            for expert, peer in owners.items():
                if self.granted.get(expert, ("", 0))[0] != peer:
                    self.granted[expert] = (peer, self.epoch)
            self.granted = {e: g for e, g in self.granted.items() if e in owners}
        placed = sorted({peer for peer, _ in self.granted.values()} | set(peers or ()))
        plan = sync_pb2.Plan(
            epoch=self.epoch,
            owners=[
                sync_pb2.Owner(expert=e, peer=p, granted_epoch=x)
                for e, (p, x) in sorted(self.granted.items())
            ],
            peers=placed,
            replicated=bool(placed) and self.replicated,
        )
        return self.stub.ApplyPlan(
            control_pb2.SyncPlan(
                job_uid=self.job_uid,
                incarnation=self.incarnation,
                settings_json=self.settings_json,
                plan=plan,
                seed_peer=seed_peer,
                add_tokens=self.tokens,
            ),
            timeout=DEADLINE_SECONDS,
        )

    def state(self) -> control_pb2.SyncState:
        """The server's state now."""
        watch = self.stub.Watch(control_pb2.WatchRequest(), timeout=DEADLINE_SECONDS)
        try:
            return next(watch)
        finally:
            watch.cancel()

    def drain(self, *peers: str, grace: float = 5.0, stop: bool = False) -> None:
        """Ask for final pushes."""
        self.stub.Drain(
            control_pb2.DrainRequest(
                peers=peers, grace_seconds=grace, stop=stop, reason="STOPPED" if stop else ""
            ),
            timeout=DEADLINE_SECONDS,
        )


@dataclass
class TestServer:
    """A server that is running, and how to reach it."""

    directory: Path
    tls: TestTls
    ports: Ports
    hub: Hub
    server: SyncServer

    __test__ = False

    @property
    def address(self) -> str:
        return f"localhost:{self.ports.port}"

    def peer(self, name: str) -> Peer:
        """What the server knows of a peer."""
        run = self.server.engine.run if self.server.engine else None
        return run.state.peers.get(PeerId(name), _UNKNOWN) if run else _UNKNOWN

    def scrape(self) -> str:
        """What /metrics says."""
        url = f"http://127.0.0.1:{self.ports.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=5) as answer:
            text: str = answer.read().decode()
        return text

    def journal(self, event: str = "") -> list[dict]:
        """Its journal so far, or one kind of event."""
        lines = (self.directory / "journal.jsonl").read_text().splitlines()
        events = [json.loads(line) for line in lines]
        return [each for each in events if event in ("", each["event"])]


def hub_channel(tls: TestTls, control_port: int) -> grpc.Channel:
    """A channel with the hub's certificate."""
    credentials = grpc.ssl_channel_credentials(
        tls.ca_file.read_bytes(), tls.hub_key, tls.hub_certificate
    )
    return grpc.secure_channel(f"localhost:{control_port}", credentials)


class SkippingClock:
    """Monotonic time that a test can put forward."""

    def __init__(self) -> None:
        self._skipped = 0.0

    def skip(self, seconds: float) -> None:
        self._skipped += seconds

    def now(self) -> float:
        return monotonic() + self._skipped


@contextmanager
def running_server(  # noqa: PLR0913  each has a use
    directory: Path,
    *,
    disk: Disk | None = None,
    clock: SkippingClock | None = None,
    tls: TestTls | None = None,
    port: int = 0,
    unix: Callable[[], float] = time,
) -> Iterator[TestServer]:
    """Serve a volume until the block ends; again on the same directory is a restart."""
    tls = tls or make_tls(directory.parent / f"{directory.name}-tls")
    where = Where(directory=directory, tls=TlsFiles.inside(tls.directory), port=port)
    clocks = Clocks(now=(clock or SkippingClock()).now, unix=unix)
    server = SyncServer(where, Edges(disk=disk or Disk(), clocks=clocks))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="sync-server", daemon=True)
    thread.start()
    try:
        ports = asyncio.run_coroutine_threadsafe(server.start(), loop).result(DEADLINE_SECONDS)
        with hub_channel(tls, ports.control_port) as channel:
            hub = Hub(control_pb2_grpc.ControlStub(channel))
            yield TestServer(directory, tls, ports, hub, server)
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(DEADLINE_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(DEADLINE_SECONDS)
        loop.close()
