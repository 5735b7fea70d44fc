"""HubView and HubPlan: all that a pass over one job sees, and all that it wants written.

Plain data. The view is made by `observe`, the plan by `reconcile`, and `write` carries it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from spes_api.job import SpesJob, SpesJobStatus
from spes_api.kinds import MemberCluster, MemberReport, TrainerAssignment

from spes_operator.hub.heartbeats import SILENT_INTERVALS
from spes_operator.hub.lifetime import Activity
from spes_operator.hub.ownership import Ownership
from spes_operator.hub.sync_state import DrainOrder, Phase, SyncPlan, SyncState, TokenHash
from spes_operator.k8s.events import Event
from spes_operator.names import ObjectKey, PeerId, member_namespace
from spes_operator.reasons import COMPLETE

# A member that was silent is heard for this many heartbeats before it gets new experts.
DAMPING_INTERVALS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSeen:
    """A member as the hub sees it now."""

    cluster: MemberCluster
    report: MemberReport | None = None
    """None: it has not reported yet."""
    silent_for: timedelta = timedelta()
    """Since the hub last saw its heartbeat change, by its own clock; at most the hub's age."""
    back_for: timedelta | None = None
    """Since it ended a silence; None: it never was silent while this hub watched."""
    report_problem: str = ""
    """Why what it reports cannot be read; empty: it can."""
    is_closed: bool = False
    """The hub may not look into its namespace: nothing can be given to it, or taken from it."""
    twin: str = ""
    """Another member that is the same cluster and came first; empty: there is none."""
    has_beaten: bool = True
    """Its Lease is there; without one its silence is the hub's age and says nothing of it."""
    renewed: str = ""
    """When the last beat was sent by the member's clock; empty: none came since the hub started."""

    @property
    def interval(self) -> timedelta:
        """From one of its heartbeats to the next."""
        return timedelta(seconds=self.cluster.spec.heartbeat.interval_seconds)

    @property
    def is_open(self) -> bool:
        """It may be given something."""
        return self.cluster.spec.accepted and not self.is_closed

    @property
    def is_silent(self) -> bool:
        """Too many of its heartbeats are missing."""
        return self.silent_for > SILENT_INTERVALS * self.interval

    @property
    def is_returning(self) -> bool:
        """It is heard again, but not for long enough to be relied on."""
        return self.back_for is not None and self.back_for < DAMPING_INTERVALS * self.interval

    @property
    def pinned_id(self) -> str:
        """The cluster that may answer under its name; empty: the first one that reports."""
        return self.cluster.status.cluster_id or self.cluster.spec.expected_cluster_id

    @property
    def is_another_cluster(self) -> bool:
        """Another cluster than the pinned one reports under its name."""
        return bool(
            self.report and self.pinned_id and self.report.status.cluster_id != self.pinned_id
        )

    @property
    def name(self) -> str:
        """The member's name."""
        return self.cluster.metadata.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSeen:
    """The job's sync server as a workload."""

    ready: bool = False
    endpoint: str = ""
    """host:port for peers; empty: it never listened."""
    control_endpoint: str = ""
    """host:port for the hub; may be of a server that is not ready now."""
    ca_bundle: str = ""
    """PEM of the CA that signed its certificate."""
    message: str = ""
    """Why it is not ready."""
    problem: str = ""
    """What a person must mend, even while it still serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubView:
    """One job and all that decides about it."""

    job: SpesJob
    ownership: Ownership | None
    members: tuple[MemberSeen, ...]
    assignments: tuple[TrainerAssignment, ...]
    """Of this job, in every member's namespace."""
    server: ServerSeen
    unreadable: Mapping[ObjectKey, str] = field(default_factory=dict)
    """More assignments of this job, with what is wrong with them; they stay as they are."""
    sync: SyncState | None
    """None: the sync server cannot be reached."""
    applied: SyncPlan | None = None
    """The last plan that this hub process applied; None: it applied none yet."""
    asked: Mapping[PeerId, timedelta] = field(default_factory=dict)
    """How long ago this hub process last asked peers to leave."""
    refused: str = ""
    """What the hub's API server did not take of the last plans for a peer; empty: it took all."""
    closed_before: frozenset[str] = frozenset()
    """Namespaces of members that were closed in the last pass: what is of a moment is not told."""
    join_secrets: Mapping[ObjectKey, TokenHash] = field(default_factory=dict)
    known_for: Mapping[str, timedelta] = field(default_factory=dict)
    """UID of an assignment that came while this hub process looked -> how long ago that was."""
    hub_age: timedelta
    startable_for: timedelta | None = None
    """How long enough peers for the start have been caught up; None: they are not."""

    @property
    def closed_namespaces(self) -> frozenset[str]:
        """Of members; nothing can be written there."""
        return frozenset(member_namespace(one.name) for one in self.members if one.is_closed)

    def may_write(self, assignment: ObjectKey) -> bool:
        """What cannot be read is not written over, and nothing is where nothing can be written."""
        return (
            assignment.namespace not in self.closed_namespaces and assignment not in self.unreadable
        )

    @property
    def complete(self) -> bool:
        """All tokens are trained; what was written is believed while the sync server is away."""
        if self.sync is not None:
            return self.sync.phase is Phase.COMPLETE
        written = {item.type: item.status for item in self.job.status.conditions}
        return written.get(COMPLETE) == "True"

    @property
    def halted(self) -> bool:
        """All trainers are to stop; experts, versions and volume stay as they are."""
        over = Activity.of(self.job.status).exceeds(self.job.spec)
        return self.job.spec.suspend or (over and not self.complete)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubPlan:
    """Writes in their order; the writer may stop after any of them, the next pass goes on."""

    join_secrets: Mapping[ObjectKey, PeerId] = field(default_factory=dict)
    """Absent, used or past half their life: the writer mints a token for the peer."""
    ownership: Ownership | None = None
    """None: unchanged. If set, only this is written; the rest follows on the next pass."""
    sync_plan: SyncPlan | None = None
    drain: DrainOrder | None = None
    apply: tuple[TrainerAssignment, ...] = ()
    delete_secrets: tuple[ObjectKey, ...] = ()
    """Tokens that nobody needs any more; before the assignments that name them."""
    delete: tuple[ObjectKey, ...] = ()
    """Assignments."""
    status: SpesJobStatus
    events: tuple[Event, ...] = ()
    again_in: timedelta
    delete_job: bool = False
    """It finished so long ago that it goes by its ttlSecondsAfterFinished."""
    startable: bool = False
    """Enough peers for the start are caught up; the caller keeps the time since when."""
