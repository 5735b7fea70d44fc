"""The cluster of one local run: hub, sync server, members, and what events do to them.

Hub and members are the code that serves clusters; API server, kubelet and fate are played here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import timedelta

from spes_api.job import SpesJob
from spes_api.kinds import HeartbeatSpec, MemberCluster, MemberClusterSpec
from spes_api.members import MemberEntry
from spes_api.schema_base import API_VERSION

from spes_operator.clock import SystemClock
from spes_operator.errors import SpesError
from spes_operator.hub.controller import HubController
from spes_operator.hub.pki import Pki
from spes_operator.hub.settings import HubSettings
from spes_operator.hub.sync_control import GrpcSyncControl, SyncControl, Target
from spes_operator.hub.sync_state import Phase
from spes_operator.hub.view import ServerSeen
from spes_operator.k8s.api import JsonObject
from spes_operator.k8s.events import Event as KubeEvent
from spes_operator.k8s.events import post
from spes_operator.k8s.memory import MemoryApi
from spes_operator.k8s.sync_server import SyncServer
from spes_operator.k8s.typed import get_model
from spes_operator.k8s.workloads import LocalJob, WorkloadPaths
from spes_operator.local.events import SYNC_SERVER, Event, Verb
from spes_operator.local.machine import Machine
from spes_operator.local.member import HEARTBEAT, LocalMember, Site
from spes_operator.local.prepare import Prepared
from spes_operator.local.sync_host import LocalSyncHost
from spes_operator.local.sync_servers import SyncServers
from spes_operator.names import ObjectKey, sync_server_name
from spes_operator.reasons import DRAINED

logger = logging.getLogger(__name__)

# Who applies what a person would apply with kubectl.
_USER = "user"
_POLL_SECONDS = 0.1
# Beyond a trainer's grace: for the hub to notice, and for the agent to remove the Job.
_DRAIN_SLACK = timedelta(seconds=30)
# A commit of the last pushes; without it they stay on the server's disk.
_SETTLE_LIMIT = timedelta(seconds=30)


class World:
    """All that runs for one job on this machine."""

    def __init__(self, prepared: Prepared, api: MemoryApi, machine: Machine) -> None:
        """Prepare; nothing is started before `open`."""
        self.api = api
        self.job = ObjectKey(
            prepared.job.metadata.namespace or "default", prepared.job.metadata.name
        )
        self.server = ObjectKey(self.job.namespace, sync_server_name(self.job.name))
        folder = prepared.folder
        self._prepared = prepared
        self._pki = Pki.open(folder.tls)
        self._grace = timedelta(seconds=prepared.job.spec.trainer.grace_period_seconds)
        self._servers = SyncServers(api, environment=machine.environment, logs=folder.logs)
        self.hub = HubController(
            api,
            HubSettings(
                host=LocalSyncHost(api, pki=self._pki, paths=self._server_paths),
                connect=self._connect,
            ),
        )
        site = Site(hub=api, folder=folder, machine=machine, datasets=prepared.progress.datasets)
        self._entries = {entry.name: entry for entry in prepared.members.members}
        self.members = {name: LocalMember(entry, site) for name, entry in self._entries.items()}
        self._hub_run: asyncio.Task[None] | None = None
        self._servers_run: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start the hub, and every member that is there at this point of the story."""
        for entry in self._entries.values():
            await self.api.apply(_USER, _member_object(entry))
        await self.api.apply(_USER, _job_object(self._prepared.job, self.job))
        self._servers_run = asyncio.create_task(self._servers.run())
        self._hub_run = asyncio.create_task(self.hub.run())
        progress = self._prepared.progress
        for member in self.members.values():
            if member.name not in progress.absent:
                member.join()
            if member.name in progress.preempted:
                await member.preempt(self._grace)

    def check(self) -> None:
        """Raise whatever ended a part that should still run."""
        for task in (self._hub_run, self._servers_run):
            if task is not None and task.done():
                task.result()
        self._servers.check()
        for member in self.members.values():
            member.check()

    @property
    def absent(self) -> frozenset[str]:
        """Members whose agent does not run."""
        return frozenset(name for name, member in self.members.items() if not member.present)

    @property
    def preempted(self) -> frozenset[str]:
        """Members whose nodes were taken away."""
        return frozenset(name for name, member in self.members.items() if member.preempted)

    async def running_trainers(self) -> bool:
        """Whether any trainer's process runs, or will again."""
        jobs = await self._jobs()
        return any(job.status.active for job in jobs)

    async def broken(self) -> str:
        """Why the job can never go on by itself; empty: it can.

        Trainers count that failed for good, if too few others are left.
        """
        if reason := self._servers.broken():
            return reason
        failed = [
            job
            for job in await self._jobs()
            if job.status.reason in ("Failed", "BackoffLimitExceeded")
        ]
        left = self._num_slots() - len(failed)
        if not failed or left >= self._prepared.job.spec.members.min:
            return ""
        return f"too few trainers are left ({left}): {failed[0].status.message}"

    async def act(self, event: Event) -> None:
        """Let `event` happen; returns when it is over."""
        await self._tell(event)
        if event.target == SYNC_SERVER:
            await self._servers.kill()
            return
        member = self.members[event.target]
        match event.verb:
            case Verb.JOINS:
                await self._cordon(member.name, cordoned=False)
                member.join()
            case Verb.LEAVES:
                await self._cordon(member.name, cordoned=True)
                await self._drained(member.name)
                await member.stop(self._grace)
            case Verb.PREEMPTED:
                await member.preempt(self._grace)
            case Verb.CRASHES:
                await member.crash()
            case Verb.KILLED:
                await member.stop(timedelta(0))

    async def close(self, grace: timedelta) -> None:
        """End the hub, then the members, then the sync server; afterwards no process is left.

        The hub goes first, so that it moves no experts because of the rest. Peers get `grace` for
        their last pushes, which the sync server commits if it can; grace 0 kills everything.
        """
        await _cancel(self._hub_run)
        await asyncio.gather(*(member.stop(grace) for member in self.members.values()))
        if grace:
            await self._settle()
            await self._servers.stop()
        await _cancel(self._servers_run)

    async def _jobs(self) -> list[LocalJob]:
        return [job for member in self.members.values() for job in await member.jobs()]

    def _num_slots(self) -> int:
        """Slots that are there now."""
        return sum(
            len(self._entries[name].slots)
            for name, member in self.members.items()
            if member.present and not member.preempted
        )

    def _connect(self, server: ServerSeen) -> SyncControl:
        return self._control(server.control_endpoint)

    def _control(self, endpoint: str) -> SyncControl:
        target = Target(endpoint=endpoint, ca_pem=self._pki.ca_pem)
        return GrpcSyncControl(target, identity=self._pki.hub_client())

    def _server_paths(self, _: ObjectKey) -> WorkloadPaths:
        folder = self._prepared.folder
        return WorkloadPaths(work=folder.sync, secrets=folder.sync / "tls", data=folder.data)

    async def _settle(self) -> None:
        """Wait, but not for long, until the sync server has committed what peers pushed last."""
        server = await get_model(self.api, SyncServer, *self.server)
        if server is None or not server.status.ready:
            return
        control = self._control(server.status.control_endpoint)
        try:
            async with asyncio.timeout(_SETTLE_LIMIT.total_seconds()):
                async for state in control.watch():
                    if state.phase not in (Phase.OPEN, Phase.CLOSING) or not state.pushed:
                        return
        except (TimeoutError, SpesError) as error:
            logger.warning("sync server did not settle error=%r", error)
        finally:
            await control.close()

    async def _cordon(self, member: str, *, cordoned: bool) -> None:
        await self.api.apply(_USER, _member_object(self._entries[member], unschedulable=cordoned))

    async def _drained(self, member: str) -> None:
        """Wait until nothing of any job is left at a member, or for as long as that may take."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout((self._grace + _DRAIN_SLACK).total_seconds()):
                while not await self._is_drained(member):
                    await asyncio.sleep(_POLL_SECONDS)

    async def _is_drained(self, member: str) -> bool:
        cluster = await get_model(self.api, MemberCluster, "", member)
        return cluster is None or any(
            condition.type == DRAINED and condition.status == "True"
            for condition in cluster.status.conditions
        )

    async def _tell(self, event: Event) -> None:
        """Leave a record, for the screen and the report."""
        is_server = event.target == SYNC_SERVER
        await post(
            self.api,
            _USER,
            KubeEvent(
                reason=event.verb.capitalize(),
                message=f"{event.target} {event.verb}, as told for {event.when}",
                kind="SyncServer" if is_server else "MemberCluster",
                api_version="local.spes.dev/v1" if is_server else API_VERSION,
                namespace=self.job.namespace if is_server else "",
                name=event.target,
                time=SystemClock().now(),
                type="Normal" if event.verb in (Verb.JOINS, Verb.LEAVES) else "Warning",
            ),
        )


def _job_object(job: SpesJob, key: ObjectKey) -> JsonObject:
    """The SpesJob as a person applies it, but a run has no end in time and outlives no folder."""
    timed = {"active_deadline_seconds", "ttl_seconds_after_finished"}
    spec = job.spec.model_dump(by_alias=True, mode="json", exclude=timed, exclude_none=True)
    metadata = {"namespace": key.namespace, "name": key.name, "labels": job.metadata.labels}
    return {
        "apiVersion": job.api_version,
        "kind": job.kind,
        "metadata": metadata,
        "spec": spec,
    }


def _member_object(entry: MemberEntry, *, unschedulable: bool = False) -> JsonObject:
    """A MemberCluster as an admin applies it."""
    spec = MemberClusterSpec(
        accepted=True,
        unschedulable=unschedulable,
        heartbeat=HeartbeatSpec(interval_seconds=int(HEARTBEAT.total_seconds())),
    )
    return {
        "apiVersion": "spes.dev/v1alpha1",
        "kind": MemberCluster.__name__,
        "metadata": {"name": entry.name, "labels": entry.labels},
        "spec": spec.model_dump(by_alias=True, mode="json"),
    }


async def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait([task])
