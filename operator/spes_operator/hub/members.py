"""The status of a MemberCluster: whether it is accepted, there, and free to be used. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from spes_api.kinds import CredentialReport, MemberClusterStatus, SlotOffer
from spes_api.quantity import parse_quantity
from spes_api.schema_base import Condition

from spes_operator.clock import from_text, to_text
from spes_operator.hub.heartbeats import SILENT_INTERVALS
from spes_operator.hub.view import DAMPING_INTERVALS, MemberSeen
from spes_operator.k8s.conditions import State, next_conditions
from spes_operator.names import ANNOTATION_INVITATION
from spes_operator.reasons import (
    ACCEPTED,
    AS_EXPECTED,
    CLOCK_DIFFERS,
    CLOCK_SYNCED,
    CLUSTER_ID_DIFFERS,
    CLUSTER_TAKEN,
    CORDON_REQUESTED,
    CORDONED,
    CREDENTIAL_ENDS_SOON,
    CREDENTIAL_EXPIRED,
    CREDENTIAL_NOT_KEPT,
    CREDENTIALS_VALID,
    DRAINED,
    DRAINING,
    HEARTBEAT,
    HEARTBEAT_LOST,
    JOINED,
    NEVER_SEEN,
    NO_CREDENTIAL,
    NOT_ACCEPTED,
    NOT_HEARD,
    READY,
    REPORT_UNREADABLE,
    RETURNING,
)

# A slot is for one pod, on one node.
_MAX_GPUS = 1024
# Clocks that differ by less are taken for equal: a beat takes a while to arrive.
_CLOCK_TOLERANCE = timedelta(minutes=1)
# A limit is passed when it is exceeded.
_JUST_AFTER = timedelta(milliseconds=100)
# A credential is renewed hourly and lives for a week; one with less left has a problem.
_CREDENTIAL_MARGIN = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Whether the hub could give the member the rights that it should have, or take them."""

    problem: str = ""
    """A reason; empty: it could."""
    message: str = ""


def member_status(
    seen: MemberSeen, *, access: Access, assignments: Sequence[str], now: datetime
) -> MemberClusterStatus:
    """The status as it should be.

    Args:
        seen: The member.
        access: What came of giving it its rights.
        assignments: The UID of its job for each assignment that still lies in its namespace.
        now: By the hub's clock.
    """
    spec, before = seen.cluster.spec, seen.cluster.status
    report = seen.report.status if seen.report else None
    cordoned, generation = spec.unschedulable, seen.cluster.metadata.generation
    why_cordoned = CORDON_REQUESTED if cordoned else AS_EXPECTED
    states = [
        _accepted(seen, access),
        _joined(seen),
        _ready(seen),
        _clock_synced(seen, now),
        _credentials_valid(seen, now),
        State(CORDONED, cordoned, why_cordoned),
        State(DRAINING, cordoned and bool(assignments), why_cordoned),
        State(DRAINED, cordoned and not assignments, why_cordoned),
    ]
    return MemberClusterStatus(
        observed_generation=generation,
        cluster_id=seen.pinned_id or (report.cluster_id if report and not seen.twin else ""),
        slots=len(report.slots) if report else 0,
        gpus=sum(_gpus(slot) for slot in report.slots) if report else 0,
        jobs=len(set(assignments)),
        version=report.version if report else "",
        closed_invitation=before.closed_invitation,
        last_heartbeat_observed=_last_heartbeat(seen, now),
        conditions=next_conditions(before.conditions, states, generation=generation, now=now),
    )


def until_next_change(members: Sequence[MemberSeen]) -> timedelta | None:
    """When time alone changes a status: a silence gets too long, or a return is long enough ago.

    None: not while nothing else happens.
    """
    waits = [
        limit * seen.interval - passed
        for seen in members
        for limit, passed in (
            (SILENT_INTERVALS, seen.silent_for),
            (DAMPING_INTERVALS, seen.back_for),
        )
        if passed is not None and passed <= limit * seen.interval
    ]
    return min(waits) + _JUST_AFTER if waits else None


def _gpus(slot: SlotOffer) -> int:
    """Of any vendor: nvidia.com/gpu, amd.com/gpu, gpu.intel.com/xe; 0 if it is no such number."""
    found = (amount for name, amount in slot.resources.items() if "gpu" in name)
    try:
        count = sum(parse_quantity(amount) for amount in found)
    except ValueError:
        return 0
    return count if count <= _MAX_GPUS else 0


def _accepted(seen: MemberSeen, access: Access) -> State:
    if not seen.cluster.spec.accepted:
        return State(ACCEPTED, False, NOT_ACCEPTED, f"to use it, run: spes accept {seen.name}")
    if access.problem:
        return State(ACCEPTED, False, access.problem, access.message)
    return State(ACCEPTED, True, AS_EXPECTED)


def _joined(seen: MemberSeen) -> State:
    if seen.report_problem:
        text = f"its report cannot be read: {seen.report_problem}; it is not used"
        return State(JOINED, False, REPORT_UNREADABLE, text)
    if seen.report is None:
        return State(JOINED, False, NEVER_SEEN, "its agent has not reported yet")
    return State(JOINED, True, AS_EXPECTED)


def _ready(seen: MemberSeen) -> State:
    if refused := _refused(seen):
        return refused
    if seen.is_silent:
        what = "its heartbeat does not arrive" if seen.has_beaten else "no heartbeat has come yet"
        return State(READY, None, HEARTBEAT_LOST, what)
    if seen.is_returning:
        return State(READY, False, RETURNING, "its heartbeat is back; it counts after a while")
    return State(READY, True, HEARTBEAT)


def _refused(seen: MemberSeen) -> State | None:
    """Why it is not used, heard or not."""
    if seen.twin:  # before it is accepted too: accepting it would be of no use
        text = f"its cluster is member {seen.twin} already; it is not used: delete one of the two"
        return State(READY, False, CLUSTER_TAKEN, text)
    if not seen.cluster.spec.accepted:
        return State(READY, False, NOT_ACCEPTED, f"to use it, run: spes accept {seen.name}")
    if seen.report is None:
        return _joined(seen)._replace(kind=READY)
    if seen.is_another_cluster:
        text = f"got {seen.report.status.cluster_id}, expected {seen.pinned_id}; it is not used"
        return State(READY, False, CLUSTER_ID_DIFFERS, f"another cluster reports: {text}")
    return None


def _clock_synced(seen: MemberSeen, now: datetime) -> State:
    """For people alone: nothing is decided by it."""
    try:
        sent = from_text(seen.renewed)
    except ValueError:
        return _as_before(seen, CLOCK_SYNCED) or State(CLOCK_SYNCED, None, NOT_HEARD)
    ahead = sent - (now - seen.silent_for)
    if abs(ahead) <= _CLOCK_TOLERANCE:
        return State(CLOCK_SYNCED, True, AS_EXPECTED)
    side = "ahead of" if ahead > timedelta() else "behind"
    text = f"its clock is more than {_CLOCK_TOLERANCE.seconds} s {side} the hub's; nothing depends"
    return State(CLOCK_SYNCED, False, CLOCK_DIFFERS, f"{text} on it but what people read")


def _as_before(seen: MemberSeen, kind: str) -> State | None:
    """The condition as it is written: there is nothing new to judge it by."""
    before: Condition | None = next(
        (one for one in seen.cluster.status.conditions if one.type == kind), None
    )
    if before is None:
        return None
    is_true = {"True": True, "False": False, "Unknown": None}[before.status]
    return State(kind, is_true, before.reason, before.message)


def _credentials_valid(seen: MemberSeen, now: datetime) -> State:
    """Its end is compared with the hub's clock, by which the hub's API server set it."""
    credential = seen.report.status.credential if seen.report else None
    if credential is None:
        if ANNOTATION_INVITATION not in seen.cluster.metadata.annotations:
            return State(CREDENTIALS_VALID, True, AS_EXPECTED, "it was not invited and needs none")
        text = "its agent has no token of its own yet, only that of its invitation"
        return State(CREDENTIALS_VALID, None, NO_CREDENTIAL, text)
    try:
        left = from_text(credential.expires_at) - now
    except ValueError:
        text = f"its agent reports a token that ends at {credential.expires_at!r:.60}, no time"
        return State(CREDENTIALS_VALID, None, NO_CREDENTIAL, text)
    return _own_credential(seen.name, credential, left)


def _own_credential(member: str, credential: CredentialReport, left: timedelta) -> State:
    renew = f"run: spes invite {member} --renew"
    if left <= timedelta():
        text = f"its agent's token ended at {credential.expires_at}; {renew}"
        return State(CREDENTIALS_VALID, False, CREDENTIAL_EXPIRED, text)
    if left < _CREDENTIAL_MARGIN:
        text = f"its agent's token ends at {credential.expires_at} and was not renewed for days"
        return State(CREDENTIALS_VALID, True, CREDENTIAL_ENDS_SOON, f"{text}; {renew}")
    if not credential.persisted:
        text = "its agent cannot keep its token: it may need a new invitation after a restart"
        return State(CREDENTIALS_VALID, True, CREDENTIAL_NOT_KEPT, text)
    return State(CREDENTIALS_VALID, True, AS_EXPECTED)


def _last_heartbeat(seen: MemberSeen, now: datetime) -> str | None:
    """Of a silent member alone: a status is no channel for beats."""
    before = seen.cluster.status.last_heartbeat_observed
    if seen.is_silent and seen.has_beaten:
        return before or to_text(now - seen.silent_for)
    return None if seen.renewed else before  # a hub that has just started has heard nobody yet
