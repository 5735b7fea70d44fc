"""HubController: when to look at what; one work queue, one writer.

Every change of an object only marks what may be concerned; a resync marks everything, so a lost
event costs time and nothing else. What a pass does is in `jobs`, `members` and `garbage`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from datetime import timedelta
from typing import NamedTuple

from spes_operator.backoff import Backoff
from spes_operator.errors import ConflictError, NotFoundError, SpesError, UnavailableError
from spes_operator.hub.garbage import Garbage
from spes_operator.hub.heartbeats import Heartbeats
from spes_operator.hub.jobs import Jobs
from spes_operator.hub.measures import Measures
from spes_operator.hub.member_pass import MemberPass
from spes_operator.hub.members import until_next_change
from spes_operator.hub.roster import Roster
from spes_operator.hub.settings import HubSettings
from spes_operator.hub.sync_state import SyncState
from spes_operator.k8s.api import KubeApi, WatchEvent
from spes_operator.k8s.feed import Feed, Handler
from spes_operator.k8s.follow import FollowFeed
from spes_operator.names import LABEL_JOB, ObjectKey
from spes_operator.work_queue import WorkQueue

logger = logging.getLogger(__name__)

_DEBOUNCE = timedelta(milliseconds=50)
# Beats of many members make one pass; nothing follows from them within a second.
_LEASE_DEBOUNCE = timedelta(seconds=1)
# Everything is looked at this often, whatever happens.
RESYNC = timedelta(seconds=30)
# After a conflict or with an absent API.
_RETRIES = Backoff(first=timedelta(seconds=1), longest=RESYNC)


class _Work(NamedTuple):
    """What to look at: a job, which jobs there are, all members, or what deleted jobs left."""

    kind: str
    key: ObjectKey = ObjectKey("", "")


_JOBS = _Work("jobs")
_MEMBERS = _Work("members")
_GARBAGE = _Work("garbage")


class HubController:
    """All jobs and members of one hub."""

    def __init__(self, api: KubeApi, settings: HubSettings) -> None:
        """Prepare; nothing is read before `run`."""
        self._api = api
        self._settings = settings
        self._clock = settings.clock
        self._queue: WorkQueue[_Work] = WorkQueue(_DEBOUNCE)
        roster = Roster(api, Heartbeats(self._clock.monotonic()))
        self._jobs = Jobs(api, settings, roster, self._wake_job)
        self._members = MemberPass(api, roster, self._clock)
        self._garbage = Garbage(api, settings)
        self._failures: Counter[_Work] = Counter()
        self._attempt_at = self._clock.monotonic()
        self._reached = False

    @property
    def measures(self) -> Measures:
        """What is known of jobs, members and passes."""
        return self._jobs.measures

    @property
    def idle_for(self) -> timedelta:
        """Since a pass over all members last ended, well or not: they are passed over and over."""
        return timedelta(seconds=self._clock.monotonic() - self._attempt_at)

    @property
    def is_in_touch(self) -> bool:
        """The API server answered the last pass over all members."""
        return self._reached

    async def run(self, feed: Feed | None = None) -> None:
        """Reconcile until cancelled, woken by `feed`; None: what the API itself lets follow."""
        feed = feed or FollowFeed(self._api)
        handlers: dict[str, Handler] = {
            "SpesJob": self._on_job,
            "MemberCluster": self._on_any,
            "MemberReport": self._on_any,
            "TrainerAssignment": self._on_assignment,
            "Lease": self._on_lease,
            **dict.fromkeys(self._settings.host.watched, self._on_any),
        }
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(feed.run(handlers, ""))
                tasks.create_task(self._resync())
                tasks.create_task(self._work())
        finally:
            await self.close()

    async def close(self) -> None:
        """Give connections back."""
        await self._jobs.close()

    def sync_state(self, job: ObjectKey) -> SyncState | None:
        """The last state of a job's sync server; None while it is not reached."""
        return self._jobs.sync_state(job)

    def _wake_job(self, job: ObjectKey) -> None:
        self._queue.mark(_Work("job", job))

    def _on_job(self, event: WatchEvent) -> None:
        metadata = event.object["metadata"]
        self._wake_job(ObjectKey(metadata["namespace"], metadata["name"]))

    def _on_assignment(self, event: WatchEvent) -> None:
        """Of one job alone, unless two have one name."""
        job = event.object["metadata"].get("labels", {}).get(LABEL_JOB)
        self._queue.mark(_MEMBERS)
        for key in self._jobs.keys:
            if key.name == job:
                self._wake_job(key)

    def _on_lease(self, event: WatchEvent) -> None:
        """Heartbeats are many: one alone is no reason to read everything."""
        if self._members.hear(event.object):
            self._queue.mark(_MEMBERS, _LEASE_DEBOUNCE)

    def _on_any(self, _: WatchEvent) -> None:
        self._queue.mark(_MEMBERS)
        for key in self._jobs.keys:
            self._wake_job(key)

    async def _resync(self) -> None:
        while True:
            for work in (_JOBS, _MEMBERS, _GARBAGE):
                self._queue.mark(work)
            await asyncio.sleep(RESYNC.total_seconds())

    async def _work(self) -> None:
        while True:
            work = await self._queue.take()
            began = self._clock.monotonic()
            result, again_in = await self._attempt(work)
            now = self._clock.monotonic()
            self.measures.note_pass(work.kind, result, now - began)
            if work == _MEMBERS:
                self._attempt_at, self._reached = now, result != "retry"
            if again_in is not None:
                self._queue.mark(work, again_in)

    async def _attempt(self, work: _Work) -> tuple[str, timedelta | None]:
        """One pass; answers how it ended and when to look again. No trouble stops the others."""
        try:
            again_in = await self._pass(work)
        except (ConflictError, NotFoundError, UnavailableError) as error:
            logger.info("pass ended early work=%s error=%s", work, error)
            return "retry", self._delay(work)
        except SpesError as error:
            logger.error("pass refused work=%s error=%s", work, error)  # noqa: TRY400 - no surprise
            return "refused", self._delay(work)
        except Exception:
            logger.exception("pass failed work=%s", work)
            return "failed", RESYNC
        self._failures.pop(work, None)
        return "ok", again_in

    def _delay(self, work: _Work) -> timedelta:
        self._failures[work] += 1
        return _RETRIES.drawn(self._failures[work])

    async def _pass(self, work: _Work) -> timedelta | None:
        if work == _JOBS:
            for job in (await self._api.list("SpesJob")).items:
                metadata = job["metadata"]
                self._wake_job(ObjectKey(metadata["namespace"], metadata["name"]))
            for gone_perhaps in self._jobs.keys:
                self._wake_job(gone_perhaps)
            return None
        if work == _MEMBERS:
            return await self.reconcile_members()
        if work == _GARBAGE:
            return await self.remove_leftovers()
        return await self.reconcile(work.key)

    async def remove_leftovers(self) -> timedelta | None:
        """One pass over what deleted jobs left; answers when to look again."""
        return await self._garbage.collect(self._jobs.links)

    async def reconcile(self, key: ObjectKey) -> timedelta | None:
        """One pass over one job; answers when it should be looked at again."""
        again_in = await self._jobs.reconcile(key)
        if again_in is None:
            self._queue.mark(_GARBAGE)
        return again_in

    async def reconcile_members(self) -> timedelta | None:
        """One pass over all members; answers when they should be looked at again."""
        try:
            await self._members.reconcile()
        finally:
            self.measures.note_members(self._members.seen)
        return until_next_change(self._members.seen)
