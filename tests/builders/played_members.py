"""Members whose agents are real, and whose trainers are toy peers in this process.

Agents work over an API server; their own clusters are records, and for each Job that is recorded a
toy peer trains against the real sync server. All of it passes through relays: a member's network
can be cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Self

from builders.control_plane import ControlPlane
from builders.fake_cluster import FakeCluster
from builders.hub_world import MEMORY, MIB
from builders.relay import relay_to
from builders.toy_learner import toy_manifest
from builders.toy_peer import ToyPeer
from spes_operator.k8s.cluster import ClusterApi
from spes_operator.k8s.workloads import LocalJob, WorkloadPaths
from spes_operator.member.controller import MemberController, MemberSettings
from spes_operator.member.view import Inventory, MemberLimits, Slot
from spes_operator.names import CA_FILE, TOKEN_FILE
from spes_sync.client import StepPosition

IMAGE = "trainer:1"
NUM_EXPERTS = 8
HEARTBEAT = timedelta(seconds=1)
_PATHS = WorkloadPaths(work=Path("/work"), secrets=Path("/secrets"), data=Path("/data"))
_LOOK_SECONDS = 0.05
_END_SECONDS = 30.0
# A round lasts long enough that a test sees several of them, and no core is busy meanwhile.
_STEP_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where members work."""

    plane: ControlPlane
    """The hub's."""
    server: tuple[str, int]
    """Where peers reach the sync server."""
    folder: Path


class PlayedMember:
    """One member with one slot, and whoever trains there."""

    def __init__(self, name: str, place: Place, stack: contextlib.ExitStack) -> None:
        """Nothing runs yet; its links live as long as `stack`."""
        self.name = name
        self.peer: ToyPeer | None = None
        self.before_step: Callable[[StepPosition], None] = _take_time
        host, port = place.server
        self._sync = stack.enter_context(relay_to(port, host))
        api = stack.enter_context(relay_to(int(place.plane.url.rpartition(":")[2])))
        self._links = (self._sync, api)
        self._folder = place.folder
        self._kubeconfig = place.folder / f"{name}.kubeconfig"
        text = place.plane.kubeconfig.read_text()
        self._kubeconfig.touch(0o600)
        self._kubeconfig.write_text(text.replace(place.plane.url, f"https://127.0.0.1:{api.port}"))
        self._cluster = FakeCluster()

    def cut(self) -> None:
        """Break all its connections, and let none be made."""
        for link in self._links:
            link.go_down()

    def mend(self) -> None:
        """Let it connect again."""
        for link in self._links:
            link.go_up()

    async def run(self) -> None:
        """Its agent and its trainers, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._train())
            tasks.create_task(self._work())

    async def _work(self) -> None:
        async with ClusterApi.open(self._kubeconfig) as hub:
            await MemberController(self.name, hub, self._cluster, _settings(self.name)).run()

    async def _train(self) -> None:
        """One trainer a Job."""
        trains = ""
        try:
            while True:
                await asyncio.sleep(_LOOK_SECONDS)
                job = next(iter(self._cluster.records.values()), None)
                if (wanted := job.name if job else "") == trains:
                    continue
                await self._end_peer()
                if job is not None:
                    self._start_peer(job)
                trains = wanted
        finally:
            await self._end_peer()

    async def _end_peer(self) -> None:
        if self.peer is not None:
            await asyncio.to_thread(self.peer.end)
            self.peer = None

    def _start_peer(self, job: LocalJob) -> None:
        (mount,) = job.secret_mounts
        folder = self._folder / f"{self.name}.{job.name}"
        folder.mkdir()
        for name, content in self._cluster.secret_data[mount.secret].items():
            (folder / name).touch(0o600)
            (folder / name).write_bytes(content)
        self.peer = ToyPeer(
            name=f"{self.name}.0",
            directory=folder / "work",
            address=f"127.0.0.1:{self._sync.port}",
            ca_file=folder / CA_FILE,
            token_file=folder / TOKEN_FILE,
            targets=(1.0, 2.0),
            manifest=toy_manifest(NUM_EXPERTS),
            before_step=lambda position: self.before_step(position),
        )
        self.peer.start()
        self._cluster.set_status(job.name, ready=True)


class PlayedMembers:
    """Members of one hub, in a thread and an event loop of their own."""

    def __init__(self, place: Place, *names: str) -> None:
        """Nothing runs before the block."""
        self._stack = contextlib.ExitStack()
        self.members = {name: PlayedMember(name, place, self._stack) for name in names}
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._live, name="members")
        self._ended: list[BaseException | None] = []

    def __enter__(self) -> Self:
        """Itself."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End them all; raises what one of them raised."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(_END_SECONDS)
        self._stack.close()
        if failed := [one for one in self._ended if isinstance(one, Exception)]:
            raise failed[0]

    def _live(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        running = [asyncio.create_task(member.run()) for member in self.members.values()]
        await self._over.wait()
        for task in running:
            task.cancel()
        self._ended = await asyncio.gather(*running, return_exceptions=True)


def _take_time(_: StepPosition) -> None:
    threading.Event().wait(_STEP_SECONDS)


def _settings(member: str) -> MemberSettings:
    async def inventory() -> Inventory:
        slot = Slot(name="0", memory_bytes=MEMORY[NUM_EXPERTS], activation_bytes=16 * MIB)
        return Inventory(cluster_id=f"uid-{member}", version="1", slots=(slot,))

    return MemberSettings(
        inventory=inventory,
        paths=lambda _: _PATHS,
        limits=MemberLimits(images=frozenset({IMAGE})),
        heartbeat=HEARTBEAT,
    )
