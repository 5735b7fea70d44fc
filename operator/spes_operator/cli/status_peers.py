"""A job's peers as `spes status` shows them: from assignments and their conditions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from spes_api.kinds import MemberCluster, TrainerAssignment
from spes_api.ranges import parse_ranges
from spes_api.schema_base import Condition

from spes_operator.display.status_view import PeerRow
from spes_operator.k8s.api import JsonObject
from spes_operator.names import PeerId, member_of
from spes_operator.reasons import (
    APPLIED,
    COMPLETED,
    FINISHED,
    POD_READY,
    READY,
    STARTING,
    WAITING_FOR_TOKEN,
)

# Of a trainer that is on its way or has done its work: nothing that a person should be told of.
_USUAL = (COMPLETED, STARTING, WAITING_FOR_TOKEN)


def peer_rows(
    job: JsonObject,
    assignments: Sequence[TrainerAssignment],
    members: Mapping[str, MemberCluster],
) -> tuple[PeerRow, ...]:
    """Those with an assignment, and those that own experts and have none any more."""
    placed = job.get("status", {}).get("ownership", ())
    owned = {row["peer"]: _experts(row["experts"]) for row in placed}
    done = {row["peer"]: row.get("contribution") for row in placed}
    rows = {
        item.peer: peer_row(item, owned.pop(item.peer, _experts(item.spec.experts)), members)
        for item in assignments
    }
    gone = {peer: PeerRow(peer=peer, state="gone", experts=own) for peer, own in owned.items()}
    return tuple(
        replace(row, contribution=done.get(peer)) for peer, row in sorted({**rows, **gone}.items())
    )


def peer_row(
    item: TrainerAssignment, experts: tuple[int, ...], members: Mapping[str, MemberCluster]
) -> PeerRow:
    """One peer, by its assignment."""
    conditions = {one.type: one for one in item.status.conditions}
    return PeerRow(
        peer=item.peer,
        state=_peer_state(item, conditions, members, is_placed=bool(experts)),
        experts=experts,
        pod=item.status.pod_name,
        restarts=item.status.restarts,
        problem=_peer_problem(conditions),
    )


def _peer_state(
    item: TrainerAssignment,
    conditions: Mapping[str, Condition],
    members: Mapping[str, MemberCluster],
    *,
    is_placed: bool,
) -> str:
    def holds(kind: str) -> bool:
        return kind in conditions and conditions[kind].status == "True"

    if holds(FINISHED):
        return "done" if item.status.exit_code == 0 else "failed"
    if item.spec.desired != "Run":
        return "draining" if item.spec.desired == "Drain" else "stopping"
    if _is_silent(members.get(member_of(PeerId(item.peer)))):
        return "silent"
    if holds(POD_READY):
        return "training" if is_placed else "ready"
    return "waiting" if _peer_problem(conditions) else "starting"


def _is_silent(member: MemberCluster | None) -> bool:
    conditions = member.status.conditions if member else ()
    return any(one.type == READY and one.status == "Unknown" for one in conditions)


def _peer_problem(conditions: Mapping[str, Condition]) -> str:
    for kind, bad in ((APPLIED, "False"), (FINISHED, "True"), (POD_READY, "False")):
        one = conditions.get(kind)
        is_told = one is not None and one.status == bad and one.reason not in _USUAL
        if one is not None and is_told and one.message:
            return f"{one.reason}: {one.message}"
    return ""


def _experts(ranges: str) -> tuple[int, ...]:
    """In order; what is no list of ranges names none."""
    try:
        return tuple(sorted(parse_ranges(ranges)))
    except ValueError:
        return ()
