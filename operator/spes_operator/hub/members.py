"""The status of a MemberCluster: whether it is accepted, there, and free to be used. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from spes_api.kinds import MemberClusterStatus

from spes_operator.clock import from_text, to_text
from spes_operator.hub.heartbeats import SILENT_INTERVALS
from spes_operator.hub.peers import DAMPING_INTERVALS
from spes_operator.hub.view import MemberSeen
from spes_operator.k8s.conditions import State, next_conditions
from spes_operator.reasons import (
    ACCEPTED,
    AS_EXPECTED,
    CLUSTER_ID_DIFFERS,
    CORDON_REQUESTED,
    CORDONED,
    DRAINED,
    DRAINING,
    HEARTBEAT,
    HEARTBEAT_LOST,
    JOINED,
    NEVER_SEEN,
    NOT_ACCEPTED,
    READY,
    RETURNING,
)

# The time of the last heartbeat in the status is this coarse: a status is no channel for beats.
_HEARTBEAT_GRAIN = timedelta(minutes=1)


def member_status(seen: MemberSeen, *, num_assignments: int, now: datetime) -> MemberClusterStatus:
    """The status as it should be; `num_assignments` are those that still lie in its namespace."""
    spec, before = seen.cluster.spec, seen.cluster.status
    reported = seen.report.status.cluster_id if seen.report else ""
    cordoned = spec.unschedulable
    states = [
        State(ACCEPTED, spec.accepted, AS_EXPECTED if spec.accepted else NOT_ACCEPTED),
        State(JOINED, seen.report is not None, AS_EXPECTED if seen.report else NEVER_SEEN),
        _ready(seen),
        State(CORDONED, cordoned, CORDON_REQUESTED if cordoned else AS_EXPECTED),
        State(DRAINING, cordoned and num_assignments > 0, _reason(cordoned)),
        State(DRAINED, cordoned and num_assignments == 0, _reason(cordoned)),
    ]
    return MemberClusterStatus(
        observed_generation=seen.cluster.metadata.generation,
        cluster_id=before.cluster_id or spec.expected_cluster_id or reported,
        slots=len(seen.report.status.slots) if seen.report else 0,
        last_heartbeat_observed=_last_heartbeat(seen, now),
        conditions=next_conditions(
            before.conditions, states, generation=seen.cluster.metadata.generation, now=now
        ),
    )


def _reason(cordoned: bool) -> str:
    return CORDON_REQUESTED if cordoned else AS_EXPECTED


def _ready(seen: MemberSeen) -> State:
    interval = timedelta(seconds=seen.cluster.spec.heartbeat.interval_seconds)
    pinned = seen.cluster.status.cluster_id or seen.cluster.spec.expected_cluster_id
    if not seen.cluster.spec.accepted:
        return State(READY, False, NOT_ACCEPTED, "set spec.accepted to use it")
    if seen.report is None:
        return State(READY, False, NEVER_SEEN, "its agent has not reported yet")
    if pinned and seen.report.status.cluster_id != pinned:
        text = f"got {seen.report.status.cluster_id}, expected {pinned}; it is not used"
        return State(READY, False, CLUSTER_ID_DIFFERS, f"another cluster reports: {text}")
    if seen.silent_for > SILENT_INTERVALS * interval:
        return State(READY, None, HEARTBEAT_LOST, "its heartbeat does not arrive")
    if seen.back_for is not None and seen.back_for < DAMPING_INTERVALS * interval:
        return State(READY, False, RETURNING, "its heartbeat is back; it counts after a while")
    return State(READY, True, HEARTBEAT)


def _last_heartbeat(seen: MemberSeen, now: datetime) -> str:
    before = seen.cluster.status.last_heartbeat_observed
    heard_at = now - seen.silent_for
    if seen.report is None:
        return before
    if before and heard_at - from_text(before) < _HEARTBEAT_GRAIN:
        return before
    return to_text(heard_at)
