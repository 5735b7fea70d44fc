"""HubController: observes, lets the pure passes decide, writes; one work queue, one writer.

Every change of an object only marks what may be concerned; a resync marks everything, so a lost
event costs time and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from pydantic import ValidationError
from spes_api.job import SpesJob

from spes_operator.clock import Clock, SystemClock
from spes_operator.errors import ConflictError, NotFoundError, UnavailableError
from spes_operator.hub.garbage import Garbage
from spes_operator.hub.heartbeats import Heartbeats
from spes_operator.hub.members import member_status
from spes_operator.hub.observe import Remembered, observe_job, observe_members
from spes_operator.hub.reconcile import reconcile_job
from spes_operator.hub.status import differs_in_substance
from spes_operator.hub.sync_control import SyncControl
from spes_operator.hub.sync_host import SyncHost
from spes_operator.hub.sync_link import SyncLink
from spes_operator.hub.sync_state import SyncPlan, SyncState
from spes_operator.hub.view import HubPlan, HubView, ServerSeen
from spes_operator.hub.write import write_invalid, write_plan, write_status
from spes_operator.k8s.api import JsonObject, KubeApi
from spes_operator.k8s.feed import Feed, Handler
from spes_operator.k8s.follow import FollowFeed
from spes_operator.k8s.typed import first_problem
from spes_operator.names import ObjectKey, member_namespace
from spes_operator.work_queue import WorkQueue

logger = logging.getLogger(__name__)

_DEBOUNCE = timedelta(milliseconds=50)
_RESYNC = timedelta(seconds=30)
# Progress (round, tokens, loss) reaches a job's status at most this often.
_STATUS_INTERVAL = timedelta(seconds=10)
# After a conflict or with an absent API.
_RETRY = timedelta(seconds=1)


class _Work(NamedTuple):
    """What to look at: a job, all members, or what deleted jobs left behind."""

    kind: str
    key: ObjectKey = ObjectKey("", "")


_MEMBERS = _Work("members")
_GARBAGE = _Work("garbage")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSettings:
    """What the hub controller is given besides the API."""

    host: SyncHost
    """Runs the sync servers."""
    connect: Callable[[str], SyncControl]
    """Endpoint of a control port -> the way to speak to it."""
    feed: Feed | None = None
    """Brings the objects; None: followed through the API itself."""
    clock: Clock = field(default_factory=SystemClock)


@dataclass(slots=True)
class _JobMemory:
    """What only this process knows of a job; lost at a restart without harm."""

    link: SyncLink | None = None
    applied: SyncPlan | None = None
    startable_since: float | None = None
    status_at: float = float("-inf")


class HubController:
    """All jobs and members of one hub."""

    def __init__(self, api: KubeApi, settings: HubSettings) -> None:
        """Prepare; nothing is read before `run`."""
        self._api = api
        self._settings = settings
        self._clock = settings.clock
        self._started_at = self._clock.monotonic()
        self._heartbeats = Heartbeats(self._started_at)
        self._queue: WorkQueue[_Work] = WorkQueue(_DEBOUNCE)
        self._jobs: dict[ObjectKey, _JobMemory] = {}
        self._garbage = Garbage(api, self._clock, settings.host.leftovers)
        self._feed = settings.feed or FollowFeed(api)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                handlers: dict[str, Handler] = {
                    "SpesJob": self._mark_job,
                    "MemberCluster": self._mark_all,
                    "MemberReport": self._mark_all,
                    "TrainerAssignment": self._mark_all,
                    "Lease": self._mark_members,
                } | dict.fromkeys(self._settings.host.watched, self._mark_all)
                tasks.create_task(self._feed.run(handlers, ""))
                tasks.create_task(self._resync())
                tasks.create_task(self._work())
        finally:
            await self.close()

    async def close(self) -> None:
        """Give connections back."""
        for memory in self._jobs.values():
            if memory.link is not None:
                await memory.link.close()
        self._jobs.clear()

    def sync_state(self, job: ObjectKey) -> SyncState | None:
        """The last state of a job's sync server; None while it is not reached."""
        link = self._jobs[job].link if job in self._jobs else None
        return link.state if link else None

    def _mark_job(self, obj: JsonObject) -> None:
        metadata = obj["metadata"]
        self._queue.mark(_Work("job", ObjectKey(metadata["namespace"], metadata["name"])))

    def _mark_members(self, _: JsonObject) -> None:
        self._queue.mark(_MEMBERS)

    def _mark_all(self, _: JsonObject | None = None) -> None:
        self._queue.mark(_MEMBERS)
        self._queue.mark(_GARBAGE)
        for key in self._jobs:
            self._queue.mark(_Work("job", key))

    async def _resync(self) -> None:
        while True:
            self._mark_all()
            await asyncio.sleep(_RESYNC.total_seconds())

    async def _work(self) -> None:
        while True:
            work = await self._queue.take()
            try:
                again_in = await self._pass(work)
            except (ConflictError, NotFoundError, UnavailableError) as error:
                logger.info("pass ended early work=%s error=%s", work, error)
                again_in = _RETRY
            except Exception:  # one job's trouble must not stop the others
                logger.exception("pass failed work=%s", work)
                again_in = _RESYNC
            if again_in is not None:
                self._queue.mark(work, again_in)

    async def _pass(self, work: _Work) -> timedelta | None:
        if work == _MEMBERS:
            await self.reconcile_members()
            return None
        if work == _GARBAGE:
            return await self.remove_leftovers()
        return await self.reconcile(work.key)

    async def remove_leftovers(self) -> timedelta | None:
        """One pass over what deleted jobs left; answers when to look again."""
        links = {key: memory.link for key, memory in self._jobs.items() if memory.link}
        return await self._garbage.collect(links)

    async def reconcile(self, key: ObjectKey) -> timedelta | None:
        """One pass over one job; answers when it should be looked at again."""
        job = await self._read_job(key)
        if job is None:
            return None
        memory = self._jobs.setdefault(key, _JobMemory())
        server = await self._settings.host.keep(job)
        await self._follow_server(key, memory, server)
        now = self._clock.monotonic()
        known = self._remembered(memory, server, now)
        seen = await observe_job(self._api, job, self._heartbeats, known, now=now)
        plan = reconcile_job(seen, now=self._clock.now())
        self._note_startable(memory, plan, now)
        control = memory.link.control if memory.link else None
        await write_plan(self._api, seen, plan, control, self._clock)
        if plan.sync_plan is not None:
            memory.applied = plan.sync_plan
        if self._status_is_due(memory, seen, plan, now):
            await write_status(self._api, seen, plan)
            memory.status_at = now
        did_something = plan.ownership is not None or plan.join_secrets
        return timedelta() if did_something else plan.again_in

    async def _read_job(self, key: ObjectKey) -> SpesJob | None:
        try:
            obj = await self._api.get("SpesJob", key.namespace, key.name)
        except NotFoundError:
            await self._forget_if_removed(key)
            return None
        try:
            return SpesJob.model_validate(obj)
        except ValidationError as error:
            await write_invalid(self._api, obj, first_problem(error), self._clock)
            return None

    async def _forget_if_removed(self, key: ObjectKey) -> None:
        """A deleted job's link is kept until its server is gone: it is asked to end through it."""
        self._queue.mark(_GARBAGE)
        if await self._settings.host.exists(key):
            return
        if (memory := self._jobs.pop(key, None)) and memory.link:
            await memory.link.close()

    def _remembered(self, memory: _JobMemory, server: ServerSeen, now: float) -> Remembered:
        since = memory.startable_since
        return Remembered(
            server=server,
            sync=memory.link.state if memory.link else None,
            applied=memory.applied,
            hub_age=timedelta(seconds=now - self._started_at),
            startable_for=None if since is None else timedelta(seconds=now - since),
        )

    def _note_startable(self, memory: _JobMemory, plan: HubPlan, now: float) -> None:
        if not plan.startable:
            memory.startable_since = None
        elif memory.startable_since is None:
            memory.startable_since = now

    def _status_is_due(self, memory: _JobMemory, seen: HubView, plan: HubPlan, now: float) -> bool:
        if plan.events or differs_in_substance(plan.status, seen.job.status):
            return True
        return now - memory.status_at >= _STATUS_INTERVAL.total_seconds()

    async def _follow_server(self, key: ObjectKey, memory: _JobMemory, server: ServerSeen) -> None:
        """Where the sync server listens, it is followed."""
        endpoint = server.control_endpoint if server.ready else ""
        if memory.link is not None and endpoint and memory.link.endpoint != endpoint:
            await memory.link.close()
            memory.link = memory.applied = None
        if memory.link is None and endpoint:
            control = self._settings.connect(endpoint)
            memory.link = SyncLink(
                endpoint, control, self._clock, lambda: self._queue.mark(_Work("job", key))
            )

    async def reconcile_members(self) -> None:
        """One pass over every member's status."""
        members = await observe_members(self._api, self._heartbeats, now=self._clock.monotonic())
        assignments = (await self._api.list("TrainerAssignment")).items
        counts = Counter(item["metadata"]["namespace"] for item in assignments)
        for seen in members:
            status = member_status(
                seen,
                num_assignments=counts[member_namespace(seen.name)],
                now=self._clock.now(),
            )
            if status != seen.cluster.status:
                await self._api.patch_status(
                    "MemberCluster",
                    "",
                    seen.name,
                    status.model_dump(by_alias=True, mode="json", exclude_none=True),
                )
