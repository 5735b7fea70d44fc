"""MemberController: the agent. Heartbeat to the hub, assignments from it, Jobs in its own cluster.

Touches nothing on the hub but its own namespace. Without the hub it goes on with the assignments it
read last.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, timedelta

from spes_api.kinds import MemberReportStatus, TrainerAssignment, TrainerAssignmentStatus
from spes_api.schema_base import API_VERSION

from spes_operator.clock import Clock, SystemClock
from spes_operator.errors import (
    AlreadyExistsError,
    ConflictError,
    NotFoundError,
    UnavailableError,
)
from spes_operator.k8s.api import JsonObject, KubeApi
from spes_operator.k8s.events import post
from spes_operator.k8s.feed import Feed
from spes_operator.k8s.follow import FollowFeed
from spes_operator.k8s.typed import list_models
from spes_operator.k8s.workloads import MemberBackend, WorkloadPaths
from spes_operator.member.limits import key_of
from spes_operator.member.reconcile import reconcile_member
from spes_operator.member.secret_mirror import SecretMirror
from spes_operator.member.view import (
    Inventory,
    MemberLimits,
    MemberPlan,
    MemberView,
)
from spes_operator.names import (
    HEARTBEAT_LEASE,
    LABEL_MEMBER,
    MEMBER_OWNER,
    MEMBER_REPORT,
    member_namespace,
)
from spes_operator.work_queue import WorkQueue

logger = logging.getLogger(__name__)

_DEBOUNCE = timedelta(milliseconds=50)
_RETRY = timedelta(seconds=1)
_RETRY_FAILED = timedelta(seconds=30)
# A Job name that another owner holds is tried again after this.
_CONFLICT_MEMORY = timedelta(minutes=1)
# The one key of the work queue.
_WHOLE_MEMBER = "member"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """What the member's admin decides."""

    inventory: Callable[[], Inventory]
    """What is lent now; call `wake` when it changes."""
    paths: Callable[[str], WorkloadPaths]
    """Slot -> where its trainer finds its files."""
    limits: MemberLimits = field(default_factory=MemberLimits)
    feed: Feed | None = None
    """Brings the hub's objects; None: followed through the API itself."""
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
        self._queue: WorkQueue[str] = WorkQueue(_DEBOUNCE)
        self._assignments: tuple[TrainerAssignment, ...] = ()
        self._hub_heard_at = self._clock.monotonic()
        self._conflicts: dict[str, float] = {}
        self._secrets = SecretMirror(hub, self._namespace, backend)
        self._feed = settings.feed or FollowFeed(hub)

    async def run(self) -> None:
        """Work until cancelled; Jobs are left as they are then."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._beat())
            handlers = dict.fromkeys(("TrainerAssignment", "Secret"), self._on_object)
            tasks.create_task(self._feed.run(handlers, self._namespace))
            tasks.create_task(self._follow_backend())
            tasks.create_task(self._work())

    def wake(self) -> None:
        """Look again now, for example because the inventory changed."""
        self._queue.mark(_WHOLE_MEMBER)

    def _on_object(self, _: JsonObject) -> None:
        self.wake()

    async def _follow_backend(self) -> None:
        async for _ in self._backend.changes():
            self.wake()

    async def _work(self) -> None:
        self.wake()
        while True:
            await self._queue.take()
            try:
                again_in = await self.reconcile()
            except (ConflictError, NotFoundError, UnavailableError) as error:
                logger.info("pass ended early member=%s error=%s", self._name, error)
                again_in = _RETRY
            except Exception:  # the agent must go on: a person may mend what is wrong
                logger.exception("pass failed member=%s", self._name)
                again_in = _RETRY_FAILED
            self._queue.mark(_WHOLE_MEMBER, again_in)

    async def _beat(self) -> None:
        while True:
            await self.beat()
            jitter = random.uniform(0.9, 1)  # noqa: S311 - no secret
            await asyncio.sleep(self._settings.heartbeat.total_seconds() * jitter)

    async def beat(self) -> None:
        """Renew the Lease; whether it arrives in time is for the hub to judge."""
        try:
            await self._hub.apply(MEMBER_OWNER, self._lease())
            self._hub_heard_at = self._clock.monotonic()
        except (ConflictError, UnavailableError) as error:
            logger.warning("heartbeat failed member=%s error=%s", self._name, error)

    def _lease(self) -> JsonObject:
        renewed = self._clock.now().astimezone(UTC).isoformat(timespec="microseconds")
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "namespace": self._namespace,
                "name": HEARTBEAT_LEASE,
                "labels": {LABEL_MEMBER: self._name},
            },
            "spec": {"holderIdentity": self._name, "renewTime": renewed},
        }

    async def reconcile(self) -> timedelta:
        """One pass; answers when to look again."""
        seen = await self._observe()
        plan = reconcile_member(seen, now=self._clock.now())
        await self._act(plan)
        await self._tell(seen, plan)
        return plan.again_in

    async def _observe(self) -> MemberView:
        try:
            listed = await list_models(self._hub, TrainerAssignment, self._namespace)
            self._assignments = tuple(listed)
            self._hub_heard_at = self._clock.monotonic()
        except UnavailableError as error:
            logger.warning("hub is away member=%s error=%s", self._name, error)
        tokens = await self._secrets.mirror(self._assignments)
        silence = self._clock.monotonic() - self._hub_heard_at
        return MemberView(
            member=self._name,
            assignments=self._assignments,
            jobs=await self._backend.jobs(),
            tokens=tokens,
            limits=self._settings.limits,
            inventory=self._settings.inventory(),
            paths=self._settings.paths,
            hub_silent_for=timedelta(seconds=silence),
            conflicts=self._recent_conflicts(),
        )

    def _recent_conflicts(self) -> frozenset[str]:
        """Names that were taken by others a moment ago; later they are tried again."""
        since = self._clock.monotonic() - _CONFLICT_MEMORY.total_seconds()
        return frozenset(name for name, met_at in self._conflicts.items() if met_at > since)

    async def _act(self, plan: MemberPlan) -> None:
        for stop in plan.stop:
            await self._backend.stop(stop)
        for job in plan.create:
            try:
                await self._backend.create(job)
                logger.info("job created member=%s job=%s", self._name, job.name)
            except AlreadyExistsError:
                self._conflicts[job.name] = self._clock.monotonic()
                self.wake()

    async def _tell(self, seen: MemberView, plan: MemberPlan) -> None:
        """Events, then statuses and the report, each only if it differs."""
        for event in plan.events:
            await post(self._hub, MEMBER_OWNER, event)
        before = {key_of(item): item.status for item in seen.assignments}
        for key, status in plan.statuses.items():
            if status != before[key]:
                await self._patch("TrainerAssignment", key.name, status)
        await self._report(plan.report)

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
