"""MemberController: the agent. Assignments from the hub, Jobs in its own cluster, facts to the hub.

Touches nothing on the hub but its own namespace. Without the hub it goes on with the assignments it
read last; as long as it has read none since it started, it stops nothing for want of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta

from spes_api.kinds import (
    CredentialReport,
    MemberReportStatus,
    TrainerAssignment,
    TrainerAssignmentStatus,
)
from spes_api.schema_base import API_VERSION

from spes_operator.backoff import Backoff
from spes_operator.clock import Clock, SystemClock
from spes_operator.errors import (
    AlreadyExistsError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    SpesError,
    UnavailableError,
)
from spes_operator.isolation import Isolation
from spes_operator.k8s.api import KubeApi, WatchEvent
from spes_operator.k8s.events import post
from spes_operator.k8s.feed import Feed
from spes_operator.k8s.follow import FollowFeed
from spes_operator.k8s.typed import parse
from spes_operator.k8s.workloads import LocalJob, MemberBackend, WorkloadPaths
from spes_operator.member.health import MemberHealth
from spes_operator.member.heartbeat import Heartbeat
from spes_operator.member.limits import key_of
from spes_operator.member.reconcile import RESYNC, reconcile_member
from spes_operator.member.rejections import Rejections
from spes_operator.member.secret_mirror import SecretMirror
from spes_operator.member.view import Inventory, MemberLimits, MemberPlan, MemberView
from spes_operator.names import MEMBER_OWNER, MEMBER_REPORT, member_namespace
from spes_operator.work_queue import WorkQueue

logger = logging.getLogger(__name__)

_DEBOUNCE = timedelta(milliseconds=50)
# After a pass that failed.
_RETRIES = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=30))
# The one key of the work queue.
_WHOLE_MEMBER = "member"


def _no_credential() -> CredentialReport | None:
    return None


def _not_measured(_result: str, _seconds: float) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """What the member's admin decides."""

    inventory: Callable[[], Awaitable[Inventory]]
    """What is lent now; call `wake` when it changes."""
    paths: Callable[[str], WorkloadPaths]
    """Slot -> where its trainer finds its files."""
    limits: MemberLimits = field(default_factory=MemberLimits)
    feed: Feed | None = None
    """Brings the hub's objects; None: followed through the API itself."""
    credential: Callable[[], CredentialReport | None] = _no_credential
    """Of the connection to the hub, as it is now."""
    measured: Callable[[str, float], None] = _not_measured
    """Called after every pass with its result ("ok", "error") and its seconds."""
    heartbeat: timedelta = timedelta(seconds=10)
    clock: Clock = field(default_factory=SystemClock)


class MemberController:
    """One member's agent."""

    def __init__(
        self, name: str, hub: KubeApi, backend: MemberBackend, settings: MemberSettings
    ) -> None:
        """Prepare; nothing is read before `run`.

        Args:
            name: The member's name at the hub.
            hub: The hub's API.
            backend: The member's own cluster.
            settings: What it lends, and within which limits.
        """
        self._name = name
        self._namespace = member_namespace(name)
        self._hub = hub
        self._backend = backend
        self._settings = settings
        self._clock = settings.clock
        self.health = MemberHealth(settings.clock, {"lease": settings.heartbeat, "resync": RESYNC})
        self.heartbeat = Heartbeat(name, hub, settings.clock, self.health, self.wake)
        self._queue: WorkQueue[str] = WorkQueue(_DEBOUNCE)
        self._assignments: tuple[TrainerAssignment, ...] | None = None
        self._unreadable: frozenset[str] = frozenset()
        self._rejections = Rejections(settings.clock)
        self._secrets = SecretMirror(hub, self._namespace, backend)
        self._feed = settings.feed or FollowFeed(hub)
        self._accepted = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled; Jobs are left as they are then."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.heartbeat.run(self._settings.heartbeat))
            tasks.create_task(self._follow_hub())
            tasks.create_task(self._follow_backend())
            tasks.create_task(self._work())

    def wake(self) -> None:
        """Look again now, for example because the inventory changed."""
        self._queue.mark(_WHOLE_MEMBER)

    def _on_event(self, _: WatchEvent) -> None:
        self.wake()

    async def _follow_hub(self) -> None:
        """Watch once the hub lets this member: until it is accepted, each watch is refused."""
        await self._accepted.wait()
        handlers = dict.fromkeys(("TrainerAssignment", "Secret"), self._on_event)
        await self._feed.run(handlers, self._namespace)

    async def _follow_backend(self) -> None:
        async for _ in self._backend.changes():
            self.wake()

    async def _work(self) -> None:
        failures = 0
        self.wake()
        while True:
            await self._queue.take()
            began_at = self._clock.monotonic()
            try:
                again_in = await self.reconcile()
                failures = 0
            except SpesError as error:
                logger.info("pass ended early member=%s error=%s", self._name, error)
                failures += 1
                again_in = _RETRIES.drawn(failures)
            except Exception:  # the agent must go on: a person may mend what is wrong
                logger.exception("pass failed member=%s", self._name)
                failures += 1
                again_in = _RETRIES.longest
            self.health.attempted("resync")
            took = self._clock.monotonic() - began_at
            self._settings.measured("error" if failures else "ok", took)
            self._queue.mark(_WHOLE_MEMBER, again_in)

    async def reconcile(self) -> timedelta:
        """One pass; answers when to look again.

        Raises:
            SpesError: The hub or the member's own cluster refused or did not answer; what could be
                done without it is done.
        """
        away = await self._read_assignments()
        seen = await self._observe()
        plan = reconcile_member(seen, now=self._clock.now())
        await self._act(plan)
        if isinstance(away, UnavailableError):
            raise away  # or each call would wait for its deadline
        await self._tell(seen, plan)
        if away is not None and not isinstance(away, ForbiddenError):
            raise away
        return plan.again_in

    async def _read_assignments(self) -> SpesError | None:
        """Read them anew; answers why that did not work."""
        try:
            listed = (await self._hub.list("TrainerAssignment", self._namespace)).items
        except SpesError as error:
            return error
        read = {obj["metadata"]["name"]: parse(TrainerAssignment, obj) for obj in listed}
        self._assignments = tuple(item for item in read.values() if item is not None)
        self._unreadable = frozenset(name for name, item in read.items() if item is None)
        self._accepted.set()
        self.health.heard()
        return None

    async def _observe(self) -> MemberView:
        assignments = self._assignments or ()
        known = self._assignments is not None
        return MemberView(
            member=self._name,
            assignments=assignments,
            assignments_known=known,
            unreadable=self._unreadable,
            jobs=await self._backend.jobs(),
            tokens=await self._secrets.mirror(assignments, self._unreadable)
            if known
            else frozenset(),
            limits=self._settings.limits,
            inventory=await self._settings.inventory(),
            paths=self._settings.paths,
            hub_silent_for=self.health.hub_silent_for,
            rejected=self._rejections.recent(),
            credential=self._settings.credential(),
        )

    async def _act(self, plan: MemberPlan) -> None:
        for stop in plan.stop:
            await self._backend.stop(stop)
        for job in plan.create:
            await self._create(job)

    async def _create(self, job: LocalJob) -> None:
        try:
            await self._backend.create(job)
            logger.info("job created member=%s job=%s", self._name, job.name)
        except (AlreadyExistsError, ForbiddenError, InvalidError) as error:
            logger.warning("job refused member=%s job=%s error=%s", self._name, job.name, error)
            self._rejections.note(job.name, error)
            self.wake()

    async def _tell(self, seen: MemberView, plan: MemberPlan) -> None:
        """Events, then statuses and the report, each only if it differs."""
        told = Isolation()
        for event in plan.events:
            with told.each():
                await post(self._hub, MEMBER_OWNER, event)
        before = {key_of(item): item.status for item in seen.assignments}
        for key, status in plan.statuses.items():
            if status != before[key]:
                with told.each():
                    await self._patch("TrainerAssignment", key.name, status)
        await self._report(plan.report)
        told.check()

    async def _report(self, report: MemberReportStatus) -> None:
        wanted = report.model_dump(by_alias=True, mode="json", exclude_none=True)
        try:
            present = await self._hub.get("MemberReport", self._namespace, MEMBER_REPORT)
        except NotFoundError:
            present = await self._hub.apply(
                MEMBER_OWNER,
                {
                    "apiVersion": API_VERSION,
                    "kind": "MemberReport",
                    "metadata": {"namespace": self._namespace, "name": MEMBER_REPORT},
                },
            )
        if present.get("status") != wanted:
            await self._patch("MemberReport", MEMBER_REPORT, report)

    async def _patch(
        self, kind: str, name: str, status: TrainerAssignmentStatus | MemberReportStatus
    ) -> None:
        document = status.model_dump(by_alias=True, mode="json", exclude_none=True)
        await self._hub.patch_status(kind, self._namespace, name, document)
