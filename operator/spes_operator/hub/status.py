"""SpesJobStatus: what `kubectl get spesjob` shows. Small whatever the size of the job. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from spes_api.job import ExpertCounts, MemberCounts, OwnershipRow, SpesJobStatus
from spes_api.ranges import format_ranges

from spes_operator.clock import to_text
from spes_operator.hub.conditions import job_conditions
from spes_operator.hub.facts import Facts
from spes_operator.hub.lifetime import expiry
from spes_operator.hub.ownership import Ownership
from spes_operator.hub.sync_state import SyncState

# Rows of status.ownership; a larger job's rows are in the ownership ConfigMap.
MAX_ROWS = 64
_LOSS_DIGITS = 4
_PART_DIGITS = 3


def job_status(facts: Facts, *, now: datetime) -> SpesJobStatus:
    """The status as it should be; what the sync server said last is kept while it is away."""
    seen, before = facts.seen, facts.seen.job.status
    sync, ownership = seen.sync, seen.ownership
    num_experts = seen.job.spec.model.resolve().num_experts
    wanted = () if seen.halted else facts.chosen
    is_current = sync is not None and ownership and sync.incarnation == ownership.incarnation
    conditions = job_conditions(facts, now=now)
    expires = expiry(seen.job.spec, conditions)
    return SpesJobStatus(
        observed_generation=seen.job.metadata.generation,
        ownership_epoch=ownership.epoch if ownership else 0,
        incarnation=sync.incarnation if sync and is_current else before.incarnation,
        round=max(sync.version, 0) if sync and is_current else before.round,
        tokens=sync.global_tokens if sync and is_current else before.tokens,
        loss=_rounded(sync.held_out_loss if sync else None) or before.loss,
        members=MemberCounts(ready=facts.ready, desired=len(wanted)),
        experts=_counts(num_experts, ownership),
        ownership=_rows(num_experts, ownership, _contributions(before, sync)),
        sync_endpoint=seen.server.endpoint,
        images=before.images,
        active_seconds=int(facts.activity.counted.total_seconds()),
        active_since=facts.activity.since_text,
        expires_at=to_text(expires) if expires else "",
        conditions=conditions,
    )


def _rounded(loss: float | None) -> float | None:
    """As people read it; reports have all digits."""
    return None if loss is None else round(loss, _LOSS_DIGITS)


def _counts(num_experts: int, ownership: Ownership | None) -> ExpertCounts:
    everyone = ownership is not None and ownership.replicated
    return ExpertCounts(
        total=num_experts,
        owned=num_experts if everyone else len(ownership.owners) if ownership else 0,
        parked=len(ownership.parked) if ownership else 0,
    )


def _contributions(before: SpesJobStatus, sync: SyncState | None) -> Mapping[str, float]:
    """Each peer's part of all tokens, as people read it."""
    if sync is None:
        return {row.peer: row.contribution for row in before.ownership}
    return {peer: round(seen.contribution, _PART_DIGITS) for peer, seen in sync.peers.items()}


def _rows(
    num_experts: int, ownership: Ownership | None, contributions: Mapping[str, float]
) -> list[OwnershipRow]:
    if ownership is None:
        return []
    trained = ownership.trained(num_experts=num_experts)
    return [
        OwnershipRow(
            peer=peer,
            experts=format_ranges(trained[peer]),
            contribution=contributions.get(peer, 0.0),
        )
        for peer in ownership.peers[:MAX_ROWS]
    ]


def differs_in_substance(one: SpesJobStatus, other: SpesJobStatus) -> bool:
    """More than progress changed: such a status is written at once, progress only now and then."""
    return _substance(one) != _substance(other)


def _substance(status: SpesJobStatus) -> SpesJobStatus:
    conditions = [item.model_copy(update={"message": ""}) for item in status.conditions]
    rows = [row.model_copy(update={"contribution": 0.0}) for row in status.ownership]
    return status.model_copy(
        update={
            "round": 0,
            "tokens": 0,
            "loss": None,
            "ownership": rows,
            "conditions": conditions,
        }
    )
