"""One institution on this machine: its cluster of processes, and the agent that serves the hub."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version

from spes_api.members import MemberEntry

from spes_operator.k8s.api import KubeApi
from spes_operator.k8s.workloads import LocalJob, WorkloadPaths
from spes_operator.local.jobs import ProcessCluster
from spes_operator.local.machine import Machine
from spes_operator.local.node import Node
from spes_operator.local.rundir import RunDir
from spes_operator.member.controller import MemberController, MemberSettings
from spes_operator.member.view import Inventory, Slot
from spes_operator.names import PeerId, peer_id

# Members of a real hub beat every 10 s; here a person waits for what follows from silence.
HEARTBEAT = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What all members of a run share."""

    hub: KubeApi
    folder: RunDir
    machine: Machine
    datasets: Collection[str]
    """Every member has all of them, in the run's data folder."""


class LocalMember:
    """A member: absent until it joins, and taken away in every way that members are."""

    def __init__(self, entry: MemberEntry, site: Site) -> None:
        """Prepare an absent member."""
        self.name = entry.name
        self.preempted = False
        """Its nodes were taken away."""
        self._entry = entry
        self._site = site
        self._cluster = ProcessCluster(
            {slot: self._node(slot) for slot in map(str, range(len(entry.slots)))}
        )
        self._agent: MemberController | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def present(self) -> bool:
        """Its agent runs."""
        return self._running is not None

    def check(self) -> None:
        """Raise whatever ended the agent, or the care for one of its trainers."""
        if self._running is not None and self._running.done():
            self._running.result()
        self._cluster.check()

    async def jobs(self) -> tuple[LocalJob, ...]:
        """Its trainers."""
        return await self._cluster.jobs()

    def join(self) -> None:
        """Start the agent, or give preempted nodes back to it."""
        self.preempted = False
        self._cluster.return_nodes()
        if self._agent is None:
            settings = MemberSettings(
                inventory=self._inventory, paths=self._paths, heartbeat=HEARTBEAT
            )
            self._agent = MemberController(self.name, self._site.hub, self._cluster, settings)
            self._running = asyncio.create_task(self._agent.run())
        self._agent.wake()

    async def preempt(self, grace: timedelta) -> None:
        """Take every node away: slots are no longer offered, trainers get SIGTERM, then SIGKILL."""
        self.preempted = True
        if self._agent is not None:
            self._agent.wake()
        await self._cluster.take_nodes(grace)

    async def crash(self) -> None:
        """Kill the trainers; they are replaced."""
        await self._cluster.kill_processes()

    async def stop(self, grace: timedelta) -> None:
        """Stop the agent and its trainers; the member is absent then. Grace 0 kills."""
        self._agent = None
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
            self._running = None
        await self._cluster.close(grace)

    async def _inventory(self) -> Inventory:
        return Inventory(
            cluster_id=self.name,
            version=version("spes"),
            slots=() if self.preempted else self._slots(),
            datasets=dict.fromkeys(self._site.datasets, ""),
        )

    def _slots(self) -> tuple[Slot, ...]:
        return tuple(
            Slot(
                name=str(index),
                memory_bytes=slot.memory_bytes,
                activation_bytes=slot.activation_bytes,
                env={"OMP_NUM_THREADS": str(slot.threads)},
                slowdown=slot.slowdown,
            )
            for index, slot in enumerate(self._entry.slots)
        )

    def _peer(self, slot: str) -> PeerId:
        return peer_id(self.name, slot)

    def _paths(self, slot: str) -> WorkloadPaths:
        work = self._site.folder.peer(self._peer(slot))
        return WorkloadPaths(work=work, secrets=work / "secrets", data=self._site.folder.data)

    def _node(self, slot: str) -> Node:
        folder = self._site.folder
        return Node(
            directory=folder.peer(self._peer(slot)),
            log=folder.logs / f"{self._peer(slot)}.log",
            environment=self._site.machine.environment,
        )
