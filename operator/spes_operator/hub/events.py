"""Events of a SpesJob: what changed between the status that is written and the one before. Pure.

Derived from the two statuses alone, so that nothing is said twice in steady state, and a crash
between ownership and status loses no event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Literal

from spes_api.job import SpesJob, SpesJobStatus
from spes_api.ranges import format_ranges
from spes_api.schema_base import Condition

from spes_operator.hub.ownership import Cause, Move, Ownership
from spes_operator.hub.sync_state import SyncPlan
from spes_operator.hub.view import HubView
from spes_operator.k8s.events import Event
from spes_operator.names import ExpertId, PeerId
from spes_operator.reasons import (
    COMPLETE,
    DEGRADED,
    EXPERTS_MOVED,
    EXPERTS_PLACED,
    FAILED,
    HUB_RECOVERING,
    MAX_TOKENS_REACHED,
    MEMBER_JOINED,
    MEMBER_LEFT,
    MEMBER_RETURNED,
    PROGRESSING,
    READY,
    REPLACING_TRAINERS,
    RESUMED,
    SEEDING,
    SUSPEND_REQUESTED,
    SUSPENDED,
    TRAINERS_REPLACED,
    TRAINING,
    TTL_EXPIRED,
    VOLUME_LOST,
    WAITING_FOR_PODS,
)

# Conditions whose changes people want to read.
_SPOKEN = (READY, DEGRADED, SUSPENDED, COMPLETE, FAILED)
# Reasons that belong to every start.
_STARTING = (WAITING_FOR_PODS, SEEDING)


def job_events(
    job: SpesJob, status: SpesJobStatus, ownership: Ownership | None, *, now: datetime
) -> tuple[Event, ...]:
    """What to say about the step from `job.status` to `status`."""
    said = [
        *_placement_events(job, ownership),
        *_condition_events(job, status),
        *_replacement_events(job, status),
    ]
    return tuple(job_event(job, reason, text, now=now, type_=kind) for kind, reason, text in said)


_Kind = Literal["Normal", "Warning"]


def repair_events(seen: HubView, ownership: Ownership, *, now: datetime) -> tuple[Event, ...]:
    """Says that the sync server lost its volume, if that is why ownership is written."""
    if seen.ownership is None or ownership.incarnation <= seen.ownership.incarnation:
        return ()
    message = (
        f"the sync server's volume is older than round {seen.job.status.round}; "
        f"a peer seeds the model again (incarnation {ownership.incarnation})"
    )
    return (job_event(seen.job, VOLUME_LOST, message, now=now, type_="Warning"),)


def recovery_events(seen: HubView, plan: SyncPlan | None, *, now: datetime) -> tuple[Event, ...]:
    """Says once per start of the hub that it found a running job."""
    if seen.ownership is None or seen.applied is not None or plan is None:
        return ()
    cooldown = seen.job.spec.reassignment.cooldown_after_hub_restart_seconds
    message = f"the hub took up epoch {plan.epoch}; silence moves no expert for {cooldown} s"
    return (job_event(seen.job, HUB_RECOVERING, message, now=now),)


def expiry_events(job: SpesJob, *, now: datetime) -> tuple[Event, ...]:
    """Says that the finished job is deleted, and what stays."""
    keeps = job.spec.checkpoint.reclaim == "Keep"
    volume = "its volume stays" if keeps else "its volume goes too"
    message = f"it finished {job.spec.ttl_seconds_after_finished} s ago and is deleted; {volume}"
    return (job_event(job, TTL_EXPIRED, message, now=now),)


def job_event(
    job: SpesJob, reason: str, message: str, *, now: datetime, type_: _Kind = "Normal"
) -> Event:
    """An event about the job."""
    return Event(
        reason=reason,
        message=message,
        kind=job.kind,
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        uid=job.metadata.uid,
        time=now,
        type=type_,
    )


def _condition_events(job: SpesJob, status: SpesJobStatus) -> Iterator[tuple[_Kind, str, str]]:
    """What turned true, and every new reason of Ready; each thing once."""
    before = {item.type: item for item in job.status.conditions}
    told = {_words(item) for item in before.values() if item.type in _SPOKEN and _is_said(item)}
    for item in status.conditions:
        old = before.get(item.type)
        is_old = old is not None and (old.status, old.reason) == (item.status, item.reason)
        if item.type not in _SPOKEN or is_old:
            continue
        if _is_said(item) and _words(item) not in told:
            told.add(_words(item))
            yield _kind(item, old), item.reason, item.message
        elif item.type == SUSPENDED and item.status == "False" and old is not None:
            yield "Normal", RESUMED, "the job goes on"


def _replacement_events(job: SpesJob, status: SpesJobStatus) -> Iterator[tuple[_Kind, str, str]]:
    """The beginning and the end of a replacement of trainers."""
    before, now = (
        {item.type: item for item in one.conditions}.get(PROGRESSING)
        for one in (job.status, status)
    )
    if before is None or now is None or before.reason == now.reason:
        return
    if now.reason == REPLACING_TRAINERS:
        yield "Normal", REPLACING_TRAINERS, now.message
    elif before.reason == REPLACING_TRAINERS and now.reason == TRAINING:
        yield "Normal", TRAINERS_REPLACED, "every trainer runs as the job describes it now"


def _is_said(item: Condition) -> bool:
    """Suspension and completion speak for themselves, not also as reasons of Ready."""
    if item.type == READY:
        return item.reason not in (SUSPEND_REQUESTED, MAX_TOKENS_REACHED)
    return item.status == "True"


def _words(item: Condition) -> tuple[str, str]:
    return item.reason, item.message


def _kind(item: Condition, old: Condition | None) -> _Kind:
    if item.type == READY:
        return _kind_of_ready(item, was_ready=old is not None and old.status == "True")
    return "Warning" if item.type in (DEGRADED, FAILED) else "Normal"


def _kind_of_ready(ready: Condition, *, was_ready: bool) -> _Kind:
    is_fine = ready.status == "True" or (ready.reason in _STARTING and not was_ready)
    return "Normal" if is_fine else "Warning"


def _placement_events(
    job: SpesJob, ownership: Ownership | None
) -> Iterator[tuple[_Kind, str, str]]:
    if ownership is None or ownership.epoch <= job.status.ownership_epoch:
        return
    yield from _peer_events(job, ownership)
    if ownership.replicated and job.status.ownership_epoch == 0:
        num_experts = job.spec.model.resolve().num_experts
        peers = ", ".join(ownership.peers)
        text = f"epoch {ownership.epoch}: {peers} train all {num_experts} experts each"
        yield "Normal", EXPERTS_PLACED, text
    for epoch in range(job.status.ownership_epoch + 1, ownership.epoch + 1):
        if moves := [move for move in ownership.moves if move.epoch == epoch]:
            first = moves[0].cause is Cause.START
            yield "Normal", EXPERTS_PLACED if first else EXPERTS_MOVED, _moves_sentence(moves)


def _peer_events(job: SpesJob, ownership: Ownership) -> Iterator[tuple[_Kind, str, str]]:
    """Who takes part since this epoch, and who no more; the first placement speaks for itself."""
    if job.status.ownership_epoch == 0:
        return
    known = {PeerId(row.peer) for row in job.status.ownership}
    earlier = {
        peer
        for move in ownership.moves
        if move.epoch <= job.status.ownership_epoch
        for peer in (move.source, move.target)
    }
    for peer in sorted(set(ownership.peers) - known):
        reason = MEMBER_RETURNED if peer in earlier else MEMBER_JOINED
        yield "Normal", reason, f"{peer} takes part from epoch {ownership.epoch} on"
    for peer in sorted(known - set(ownership.peers)):
        yield "Normal", MEMBER_LEFT, f"{peer} takes no part from epoch {ownership.epoch} on"


def _moves_sentence(moves: list[Move]) -> str:
    """One batch of moves: how many, from whom to whom, the fewest possible, and why."""
    routes: dict[tuple[PeerId | None, PeerId | None], list[ExpertId]] = {}
    for move in moves:
        routes.setdefault((move.source, move.target), []).append(move.expert)
    each = ", ".join(_route(*route, experts) for route, experts in routes.items())
    count = f"{len(moves)} expert{'s' if len(moves) != 1 else ''}"
    reasons = "; ".join(dict.fromkeys(move.reason for move in moves))
    verb = "placed" if moves[0].cause is Cause.START else "moved"
    at_least = f"at least {moves[0].lower_bound} had to"
    return f"epoch {moves[0].epoch}: {count} {verb} ({at_least}): {each}; {reasons}"


def _route(source: PeerId | None, target: PeerId | None, experts: Iterable[ExpertId]) -> str:
    start = f"{source} to " if source else ""
    return f"{format_ranges(experts)} {start}{target or 'nobody'}"
