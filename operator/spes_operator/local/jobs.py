"""A member's own cluster as processes: what a kubelet and the Job controller do for its trainers.

Implements `MemberBackend`; the member's controller drives it. The world around, which takes nodes
away and kills processes, has calls of its own. Knows nothing of SPES.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta

from spes_operator.errors import AlreadyExistsError, ConfigError
from spes_operator.k8s.workloads import LocalJob, Stop
from spes_operator.local.job_process import JobProcess
from spes_operator.local.node import Node


class ProcessCluster:
    """Jobs and Secrets of one member; each slot is a node."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        """Own `nodes`, by slot; those that are not taken away are `present`."""
        self._nodes = nodes
        self._secrets: dict[str, Mapping[str, bytes]] = {}
        self._annotations: dict[str, Mapping[str, str]] = {}
        self._jobs: dict[str, JobProcess] = {}
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._stops: dict[str, asyncio.Task[None]] = {}
        self._listeners: set[asyncio.Event] = set()

    async def jobs(self) -> tuple[LocalJob, ...]:
        """Every job made by `create` that is not gone yet, with its status now."""
        return tuple(self._jobs[name].job for name in sorted(self._jobs))

    async def create(self, job: LocalJob) -> None:
        """Start `job` on its slot's node, once that is present.

        Raises:
            AlreadyExistsError: A job of that name is there.
            ConfigError: There is no such slot.
        """
        if job.name in self._jobs:
            raise AlreadyExistsError(f"job {job.name} exists already; delete it first")
        if (node := self._nodes.get(job.slot)) is None:
            raise ConfigError(
                f"job {job.name}: no such slot (got {job.slot!r}, expected one of "
                f"{', '.join(sorted(self._nodes))})"
            )
        self._jobs[job.name] = JobProcess(job, node, self._secrets, self._changed)
        if not job.suspend:
            self._runs[job.name] = asyncio.create_task(self._jobs[job.name].run())
        self._changed()

    async def stop(self, stop: Stop) -> None:
        """Begin to stop and delete; returns at once. A job that is gone is no error."""
        if stop.name in self._jobs and stop.name not in self._stops:
            self._stops[stop.name] = asyncio.create_task(self._end(stop.name, stop.grace))

    async def changes(self) -> AsyncIterator[None]:
        """Yield whenever a job's status may have changed; several changes may come as one."""
        signal = asyncio.Event()
        self._listeners.add(signal)
        try:
            while True:
                await signal.wait()
                signal.clear()
                yield
        finally:
            self._listeners.discard(signal)

    async def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """Name -> annotations of every Secret made by `put_secret`; the contents stay inside."""
        return dict(self._annotations)

    async def put_secret(
        self, name: str, data: Mapping[str, bytes], annotations: Mapping[str, str]
    ) -> None:
        """Create or replace it; files of jobs that mount it follow."""
        self._secrets[name], self._annotations[name] = dict(data), dict(annotations)
        for job in self._jobs.values():
            job.mount(name)
        self._changed()

    async def delete_secret(self, name: str) -> None:
        """Remove it; one that is gone is no error."""
        self._secrets.pop(name, None)
        self._annotations.pop(name, None)

    async def take_nodes(self, grace: timedelta) -> None:
        """Take every node away: processes get SIGTERM, SIGKILL after `grace`; none starts there."""
        for node in self._nodes.values():
            node.present.clear()
        await asyncio.gather(*(job.disrupt(grace) for job in self._jobs.values()))

    def return_nodes(self) -> None:
        """Give every node back."""
        for node in self._nodes.values():
            node.present.set()

    async def kill_processes(self) -> None:
        """Kill every process; the jobs start them again."""
        await asyncio.gather(*(job.disrupt(timedelta(0)) for job in self._jobs.values()))

    def check(self) -> None:
        """Raise whatever ended the care for a job that should still run."""
        for run in self._runs.values():
            if run.done():
                run.result()

    async def close(self, grace: timedelta) -> None:
        """End every job; afterwards no process is left. Grace 0 kills."""
        await asyncio.gather(*(self._end(name, grace) for name in list(self._jobs)))
        await asyncio.gather(*self._stops.values())

    async def _end(self, name: str, grace: timedelta) -> None:
        await self._jobs[name].stop(grace)
        if (run := self._runs.pop(name, None)) is not None:
            run.cancel()
            await asyncio.wait([run])
        self._jobs.pop(name, None)
        self._stops.pop(name, None)
        self._changed()

    def _changed(self) -> None:
        for signal in self._listeners:
            signal.set()
