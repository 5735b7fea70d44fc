"""The conditions of a SpesJob: how it is, and if it is not well, why, in one sentence. Pure.

The first problem that explains the others is the reason of Ready.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from spes_api.schema_base import Condition

from spes_operator.clock import in_seconds
from spes_operator.hub.causes import failures, hindrances
from spes_operator.hub.facts import Facts, Why
from spes_operator.hub.obstacles import not_started, too_few
from spes_operator.hub.ownership import Cause, Ownership
from spes_operator.hub.peers import Peer, drained_members, objections
from spes_operator.hub.replacement import progress
from spes_operator.hub.sync_state import Phase
from spes_operator.k8s.conditions import State, next_conditions
from spes_operator.names import member_namespace, member_of
from spes_operator.reasons import (
    AS_EXPECTED,
    COMPLETE,
    DEADLINE_EXCEEDED,
    DEGRADED,
    EXPERTS_PARKED,
    FAILED,
    HUB_FORBIDDEN,
    MAX_TOKENS_REACHED,
    MEMBER_UNREACHABLE,
    NOT_ENOUGH_MEMBERS,
    OBJECT_UNREADABLE,
    POD_PREEMPTED,
    PROGRESSING,
    QUORUM_REACHED,
    READY,
    REASSIGNING,
    REASSIGNMENT_HELD,
    REPLACING_TRAINERS,
    ROUND_HELD,
    SUSPEND_REQUESTED,
    SUSPENDED,
    SYNC_UNREACHABLE,
    TRAINER_FAILED,
    TRAINING,
    VALIDATED,
    WAITING_FOR_PODS,
    WRITE_REFUSED,
)


def job_conditions(facts: Facts, *, now: datetime) -> list[Condition]:
    """Every condition of the job, with the times of their last changes."""
    trouble = _trouble(facts)
    degraded = _degraded(facts)
    failed = _failed(facts)
    members = facts.seen.job.spec.members
    enough = facts.complete or (facts.seen.sync is not None and facts.ready >= members.min)
    count = Why(AS_EXPECTED if enough else NOT_ENOUGH_MEMBERS, facts.ready_sentence)
    states = [
        State(READY, trouble is None, *(trouble or _well(facts))),
        State(VALIDATED, True, AS_EXPECTED),
        State(QUORUM_REACHED, enough, *count),
        State(
            PROGRESSING,
            trouble is None and not facts.complete,
            *(trouble or _replacing(facts) or _well(facts)),
        ),
        State(DEGRADED, degraded is not None, *(degraded or Why(AS_EXPECTED))),
        State(SUSPENDED, facts.seen.job.spec.suspend, *_suspended(facts)),
        State(COMPLETE, facts.complete, *(_well(facts) if facts.complete else Why(TRAINING))),
        State(FAILED, failed is not None, *(failed or Why(AS_EXPECTED))),
    ]
    job = facts.seen.job
    return next_conditions(
        job.status.conditions, states, generation=job.metadata.generation, now=now
    )


def _trouble(facts: Facts) -> Why | None:
    """The first thing that keeps the job from training."""
    return None if facts.complete else next(_troubles(facts), None)


def _troubles(facts: Facts) -> Iterator[Why]:
    seen = facts.seen
    if seen.job.spec.suspend:
        yield Why(SUSPEND_REQUESTED, "spec.suspend is set")
    if failed := _failed(facts):
        yield failed
    if not seen.server.endpoint or (seen.sync is None and seen.ownership is None):
        yield Why(WAITING_FOR_PODS, seen.server.message or "the sync server is starting")
    elif seen.sync is None:
        yield Why(SYNC_UNREACHABLE, seen.server.message or "the sync server does not answer")
    if seen.sync is not None and seen.sync.phase is Phase.HELD:
        yield Why(ROUND_HELD, seen.sync.problem)
    if seen.ownership is None:
        yield not_started(facts)
    if facts.ready < seen.job.spec.members.min:
        yield from too_few(facts)


def _well(facts: Facts) -> Why:
    sync = facts.seen.sync
    tokens = sync.global_tokens if sync else 0
    if facts.complete:
        return Why(MAX_TOKENS_REACHED, f"{tokens:,} tokens are trained")
    return Why(TRAINING, "1 peer trains" if facts.ready == 1 else f"{facts.ready} peers train")


def _replacing(facts: Facts) -> Why | None:
    """How far the trainers' replacement is, if one is under way."""
    if facts.complete:
        return None
    written = {item.type: item.reason for item in facts.seen.job.status.conditions}
    begun = written.get(PROGRESSING) == REPLACING_TRAINERS
    told = progress(facts.seen.job, facts.peers, facts.chosen, begun=begun)
    return Why(REPLACING_TRAINERS, told) if told else None


def _suspended(facts: Facts) -> Why:
    if facts.seen.job.spec.suspend:
        return Why(SUSPEND_REQUESTED, "spec.suspend is set")
    return Why(AS_EXPECTED)


def _failed(facts: Facts) -> Why | None:
    """Its time is over, or no trainer is left that could ever run."""
    if facts.overdue:
        seconds = facts.seen.job.spec.active_deadline_seconds
        text = f"the job trained for activeDeadlineSeconds ({seconds} s); its volume is kept"
        return Why(DEADLINE_EXCEEDED, f"{text}, and it goes on if the deadline is raised")
    found = failures(facts.peers)
    if not found or facts.chosen or facts.complete:
        return None
    if len(found) == 1:
        return found[0]
    return Why(TRAINER_FAILED, "; ".join(why.message for why in found))


def _degraded(facts: Facts) -> Why | None:
    """What is missing while the rest goes on."""
    if facts.seen.refused:
        return Why(WRITE_REFUSED, facts.seen.refused)
    if facts.seen.sync is None or facts.seen.halted or facts.complete:
        return None
    return next(_defects(facts), None)


def _defects(facts: Facts) -> Iterator[Why]:
    lost, ownership = facts.lost, facts.seen.ownership
    if facts.seen.server.problem:
        yield Why(WRITE_REFUSED, facts.seen.server.problem)
    if unreadable := facts.seen.unreadable:
        what = "; ".join(
            f"TrainerAssignment {key.namespace}/{key.name}: {problem}"
            for key, problem in sorted(unreadable.items())
        )
        yield Why(OBJECT_UNREADABLE, f"{what}; its peer's share waits")
    if closed := _closed(facts):
        names = ", ".join(closed)
        text = f"the hub has no rights in the namespace of member {names}; what runs there goes on"
        yield Why(HUB_FORBIDDEN, f"{text} unchanged, and nothing new starts there")
    placed = [peer for peer in facts.peers if peer.placed]
    if lost.hold and lost.held:
        end = f", for at most {in_seconds(lost.hold.ends_in)}" if lost.hold.ends_in else ""
        who = "; ".join(f"{loss.peer}: {loss.reason}" for loss in lost.held)
        what = "it stays" if _replicated(facts) else "its experts stay"
        yield Why(REASSIGNMENT_HELD, f"{who}; {what}{end}: {lost.hold.reason}")
    if lost.now:
        names = ", ".join(loss.peer for loss in lost.now)
        yield Why(REASSIGNING, f"{names} no longer takes part, and no peer is left")
    if ownership and (under_way := _under_way(facts, ownership)):
        yield Why(REASSIGNING, under_way)
    yield from failures(facts.peers)
    if silent := [p for p in placed if not p.live and p.member_silent_for > p.unreachable_after]:
        yield Why(MEMBER_UNREACHABLE, _unreachable(facts, silent))
    yield from hindrances(facts.peers)
    if absent := [peer.id for peer in placed if peer.gone]:
        names = ", ".join(absent)
        yield Why(POD_PREEMPTED, f"trainers without a Session are being replaced: {names}")
    if ownership and ownership.parked:
        count = len(ownership.parked)
        yield Why(EXPERTS_PARKED, f"memory is missing for {count} experts; they take turns")


def _closed(facts: Facts) -> list[str]:
    """Members that the job would use if the hub could write there."""
    seen = facts.seen
    names = seen.closed_namespaces & seen.closed_before
    shut = [member for member in seen.members if member_namespace(member.name) in names]
    opened = [replace(member, is_closed=False) for member in shut]
    return [member.name for member in opened if not any(objections(seen.job, member))]


def _under_way(facts: Facts, ownership: Ownership) -> str:
    """Which experts of lost peers move with the next round; empty: none."""
    active = facts.seen.sync.active_epoch if facts.seen.sync else ownership.epoch
    moves = [
        move
        for move in ownership.moves_after(active)
        if move.cause in (Cause.DEPARTURE, Cause.SILENCE) and move.source not in ownership.peers
    ]
    drained = {*drained_members(facts.seen.job), *_cordoned(facts)}  # a person's wish is no defect
    lost = {move.source for move in moves if move.source and member_of(move.source) not in drained}
    sources = ", ".join(sorted(lost))
    return f"the experts of {sources} move when the next round opens" if sources else ""


def _cordoned(facts: Facts) -> Iterator[str]:
    return (one.name for one in facts.seen.members if one.cluster.spec.unschedulable)


def _unreachable(facts: Facts, silent: Sequence[Peer]) -> str:
    limit = facts.seen.job.spec.reassignment.reassign_after_seconds
    names = ", ".join(sorted({member_of(peer.id) for peer in silent}))
    then = "it takes no part" if _replicated(facts) else "its experts move"
    return f"member {names} is silent; {then} {limit} s after its last sign of life"


def _replicated(facts: Facts) -> bool:
    return facts.seen.job.spec.algorithm.replicated
