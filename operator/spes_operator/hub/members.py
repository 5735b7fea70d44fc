"""The status of a MemberCluster: whether it is accepted, there, and free to be used. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from spes_api.kinds import MemberCluster, MemberClusterStatus
from spes_api.schema_base import Condition

from spes_operator.clock import from_text, to_text
from spes_operator.hub.heartbeats import SILENT_INTERVALS
from spes_operator.hub.peers import DAMPING_INTERVALS
from spes_operator.hub.view import MemberSeen
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


class _State(NamedTuple):
    kind: str
    is_true: bool | None
    reason: str
    message: str = ""


def member_status(seen: MemberSeen, *, num_assignments: int, now: datetime) -> MemberClusterStatus:
    """The status as it should be; `num_assignments` are those that still lie in its namespace."""
    spec, before = seen.cluster.spec, seen.cluster.status
    reported = seen.report.status.cluster_id if seen.report else ""
    cordoned = spec.unschedulable
    states = [
        _State(ACCEPTED, spec.accepted, AS_EXPECTED if spec.accepted else NOT_ACCEPTED),
        _State(JOINED, seen.report is not None, AS_EXPECTED if seen.report else NEVER_SEEN),
        _ready(seen),
        _State(CORDONED, cordoned, CORDON_REQUESTED if cordoned else AS_EXPECTED),
        _State(DRAINING, cordoned and num_assignments > 0, _reason(cordoned)),
        _State(DRAINED, cordoned and num_assignments == 0, _reason(cordoned)),
    ]
    return MemberClusterStatus(
        observed_generation=seen.cluster.metadata.generation,
        cluster_id=before.cluster_id or spec.expected_cluster_id or reported,
        slots=len(seen.report.status.slots) if seen.report else 0,
        last_heartbeat_observed=_last_heartbeat(seen, now),
        conditions=[_condition(seen.cluster, state, now) for state in states],
    )


def _reason(cordoned: bool) -> str:
    return CORDON_REQUESTED if cordoned else AS_EXPECTED


def _ready(seen: MemberSeen) -> _State:
    interval = timedelta(seconds=seen.cluster.spec.heartbeat.interval_seconds)
    pinned = seen.cluster.status.cluster_id or seen.cluster.spec.expected_cluster_id
    if not seen.cluster.spec.accepted:
        return _State(READY, False, NOT_ACCEPTED, "set spec.accepted to use it")
    if seen.report is None:
        return _State(READY, False, NEVER_SEEN, "its agent has not reported yet")
    if pinned and seen.report.status.cluster_id != pinned:
        text = f"got {seen.report.status.cluster_id}, expected {pinned}; it is not used"
        return _State(READY, False, CLUSTER_ID_DIFFERS, f"another cluster reports: {text}")
    if seen.silent_for > SILENT_INTERVALS * interval:
        return _State(READY, None, HEARTBEAT_LOST, "its heartbeat does not arrive")
    if seen.back_for is not None and seen.back_for < DAMPING_INTERVALS * interval:
        return _State(READY, False, RETURNING, "its heartbeat is back; it counts after a while")
    return _State(READY, True, HEARTBEAT)


def _last_heartbeat(seen: MemberSeen, now: datetime) -> str:
    before = seen.cluster.status.last_heartbeat_observed
    heard_at = now - seen.silent_for
    if seen.report is None:
        return before
    if before and heard_at - from_text(before) < _HEARTBEAT_GRAIN:
        return before
    return to_text(heard_at)


def _condition(cluster: MemberCluster, state: _State, now: datetime) -> Condition:
    is_known = state.is_true is not None
    status = ("True" if state.is_true else "False") if is_known else "Unknown"
    before = next((one for one in cluster.status.conditions if one.type == state.kind), None)
    kept = before.last_transition_time if before and before.status == status else ""
    return Condition.model_validate(
        {
            "type": state.kind,
            "status": status,
            "reason": state.reason,
            "message": state.message,
            "observedGeneration": cluster.metadata.generation,
            "lastTransitionTime": kept or to_text(now),
        }
    )
