"""Survey of a job's peers: every slot it may use, has placed or has an assignment in. Pure.

The policies ask these questions and no others; what follows from the answers is theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from spes_api.job import SpesJob
from spes_api.kinds import SlotOffer, TrainerAssignment
from spes_api.schema_base import Condition

from spes_operator.clock import from_text
from spes_operator.hub.sync_state import PeerState
from spes_operator.hub.view import HubView, MemberSeen
from spes_operator.names import ANNOTATION_DRAIN, PeerId, member_of, peer_id, slot_of
from spes_operator.reasons import APPLIED, FINISHED, VETOED_BY_MEMBER


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One slot, seen from every side."""

    id: PeerId
    member: MemberSeen | None
    """None: the hub knows no such member any more."""
    offer: SlotOffer | None
    """None: the member does not offer the slot."""
    assignment: TrainerAssignment | None
    session: PeerState | None
    """None: the sync server does not know it, or is not reached."""
    placed: bool
    unfit: str
    """Why the member or slot must not be used, in words; empty: it may."""
    age: timedelta
    """Since the assignment was made; 0 without one."""
    unreachable_after: timedelta

    @property
    def live(self) -> bool:
        """Its Session is there and speaks."""
        return (
            self.session is not None
            and self.session.connected
            and not self.session.left
            and self.session.silent_for <= self.unreachable_after
        )

    @property
    def gone(self) -> bool:
        """Its Session has ended, or it said that it leaves."""
        return self.session is None or not self.session.connected or bool(self.session.left)

    @property
    def caught_up(self) -> bool:
        """It could take part in the next round."""
        return self.live and self.session is not None and self.session.caught_up

    @property
    def session_lost_for(self) -> timedelta:
        """How long it has been without a Session, its trainer having had time to start one."""
        if self.live:
            return timedelta()
        return self.age if self.session is None else min(self.session.silent_for, self.age)

    @property
    def member_silent_for(self) -> timedelta:
        """How long the member's heartbeat has not arrived."""
        return timedelta() if self.member is None else self.member.silent_for

    @property
    def member_heard(self) -> bool:
        """The heartbeat arrives, and has done so for a while if it had stopped."""
        if self.member is None or self.member.silent_for > self.unreachable_after:
            return False
        return not self.member.is_returning

    @property
    def failed(self) -> Condition | None:
        """What the member says of a trainer that will never run; None: it may."""
        for condition in self.assignment.status.conditions if self.assignment else ():
            if condition.type == FINISHED and condition.status == "True" and not self._stopped_well:
                return condition
            if condition.type == APPLIED and condition.reason == VETOED_BY_MEMBER:
                return condition
        return None

    @property
    def failure(self) -> str:
        """Why its trainer will never run, in words; empty: it may."""
        return self.failed.message if self.failed else ""

    @property
    def _stopped_well(self) -> bool:
        return self.assignment is not None and self.assignment.status.exit_code == 0


def survey(seen: HubView, *, now: datetime) -> tuple[Peer, ...]:
    """Every peer of interest, in order of id."""
    members = {member.name: member for member in seen.members}
    assignments = {PeerId(item.peer): item for item in seen.assignments}
    placed = set(seen.ownership.peers if seen.ownership else ())
    wanted = set(_selected_slots(seen)) | placed | assignments.keys()
    return tuple(
        _peer(peer, members.get(member_of(peer)), assignments.get(peer), seen=seen, now=now)
        for peer in sorted(wanted)
    )


def _selected_slots(seen: HubView) -> Iterator[PeerId]:
    for member in seen.members:
        if not _unfit_member(seen.job, member) and member.report:
            for slot in member.report.status.slots:
                yield peer_id(member.name, slot.name)


def _peer(
    peer: PeerId,
    member: MemberSeen | None,
    assignment: TrainerAssignment | None,
    *,
    seen: HubView,
    now: datetime,
) -> Peer:
    slots = member.report.status.slots if member and member.report else []
    offer = next((slot for slot in slots if slot.name == slot_of(peer)), None)
    unfit = f"member {member_of(peer)} is removed"
    if member is not None:
        is_closed = member.is_closed and assignment is None  # what runs there is not lost by that
        unfit = _unfit_member(seen.job, replace(member, is_closed=is_closed))
    if not unfit and offer is None:
        unfit = f"{member_of(peer)} no longer offers slot {slot_of(peer)}"
    return Peer(
        id=peer,
        member=member,
        offer=offer,
        assignment=assignment,
        session=seen.sync.peers.get(peer) if seen.sync else None,
        placed=seen.ownership is not None and peer in seen.ownership.peers,
        unfit=unfit,
        age=_age(assignment, seen, now),
        unreachable_after=timedelta(seconds=seen.job.spec.reassignment.unreachable_after_seconds),
    )


def _unfit_member(job: SpesJob, member: MemberSeen) -> str:
    return next(objections(job, member), "")


def objections(job: SpesJob, member: MemberSeen) -> Iterator[str]:
    """Why the job must not use a member, in words."""
    cluster, report = member.cluster, member.report
    if member.is_closed:
        yield f"the hub has no rights in the namespace of member {member.name}"
    if not cluster.spec.accepted:
        yield f"member {member.name} is not accepted"
    if cluster.spec.unschedulable:
        yield f"member {member.name} is drained"
    if member.name in drained_members(job):
        yield f"member {member.name} is drained from this job"
    if not job.spec.members.selector.items() <= cluster.metadata.labels.items():
        yield f"member {member.name} does not match members.selector"
    if report is None:
        unread = f"the report of member {member.name} cannot be read"
        yield unread if member.report_problem else f"member {member.name} has not reported yet"
        return
    if member.is_another_cluster:
        yield f"another cluster answers as member {member.name}"
    if member.twin:
        yield f"the cluster of member {member.name} is member {member.twin} already"
    if missing := missing_datasets(job, member):
        yield f"member {member.name} has no dataset {', '.join(missing)}"


def drained_members(job: SpesJob) -> frozenset[str]:
    """Members that a person let leave this job alone."""
    return frozenset(job.metadata.annotations.get(ANNOTATION_DRAIN, "").split(","))


def missing_datasets(job: SpesJob, member: MemberSeen) -> tuple[str, ...]:
    """Datasets that the job reads and the member does not declare."""
    declared = {one.name for one in member.report.status.datasets} if member.report else set()
    return tuple(sorted(set(job.spec.datasets) - declared))


def _age(assignment: TrainerAssignment | None, seen: HubView, now: datetime) -> timedelta:
    """By this process's clock alone; the API server's tells of what a restarted hub has found."""
    if assignment is None or not assignment.metadata.creation_timestamp:
        return timedelta()
    if (age := seen.known_for.get(assignment.metadata.uid)) is not None:
        return age
    return max(timedelta(), now - from_text(assignment.metadata.creation_timestamp))
