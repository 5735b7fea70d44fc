"""The conditions of a SpesJob: how it is, and if it is not well, why, in one sentence. Pure.

The first problem that explains the others is the reason of Ready.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from spes_api.schema_base import Condition

from spes_operator.hub.candidates import to_candidates
from spes_operator.hub.membership import Losses
from spes_operator.hub.peers import Peer, missing_datasets
from spes_operator.hub.sync_state import Phase
from spes_operator.hub.view import HubView
from spes_operator.k8s.conditions import State, next_conditions
from spes_operator.names import member_of
from spes_operator.placement.explanation import shortage
from spes_operator.placement.slots import Room, too_small
from spes_operator.reasons import (
    AS_EXPECTED,
    COMPLETE,
    DATASET_MISSING,
    DEGRADED,
    EXPERTS_PARKED,
    FAILED,
    MAX_TOKENS_REACHED,
    MEMBER_UNREACHABLE,
    NO_CAPACITY,
    NOT_ENOUGH_MEMBERS,
    POD_PREEMPTED,
    PROGRESSING,
    QUORUM_REACHED,
    READY,
    REASSIGNING,
    REASSIGNMENT_HELD,
    ROUND_HELD,
    SEEDING,
    SUSPEND_REQUESTED,
    SUSPENDED,
    SYNC_UNREACHABLE,
    TRAINER_FAILED,
    TRAINING,
    VALIDATED,
    WAITING_FOR_PODS,
)


class Why(NamedTuple):
    """Reason and sentence."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the conditions are derived from."""

    seen: HubView
    peers: tuple[Peer, ...]
    chosen: tuple[Peer, ...]
    lost: Losses

    @property
    def ready(self) -> int:
        """Peers that take part now; before the first placement, those that could."""
        if self.seen.ownership is None:
            return sum(peer.caught_up for peer in self.chosen)
        return sum(peer.placed and peer.caught_up for peer in self.peers)

    @property
    def complete(self) -> bool:
        """MaxTokens are trained."""
        return self.seen.sync is not None and self.seen.sync.phase is Phase.COMPLETE


def job_conditions(facts: Facts, *, now: datetime) -> list[Condition]:
    """Every condition of the job, with the times of their last changes."""
    trouble = _trouble(facts)
    degraded = _degraded(facts)
    failed = _failed(facts)
    members = facts.seen.job.spec.members
    enough = facts.complete or (facts.seen.sync is not None and facts.ready >= members.min)
    count = Why(AS_EXPECTED if enough else NOT_ENOUGH_MEMBERS, _ready_sentence(facts))
    states = [
        State(READY, trouble is None, *(trouble or _well(facts))),
        State(VALIDATED, True, AS_EXPECTED),
        State(QUORUM_REACHED, enough, *count),
        State(PROGRESSING, trouble is None and not facts.complete, *(trouble or _well(facts))),
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
        yield _not_started(facts)
    if facts.ready < seen.job.spec.members.min:
        yield Why(NOT_ENOUGH_MEMBERS, _ready_sentence(facts))


def _not_started(facts: Facts) -> Why:
    """Why no expert is placed yet."""
    return next(_obstacles(facts), Why(WAITING_FOR_PODS, _ready_sentence(facts)))


def _obstacles(facts: Facts) -> Iterator[Why]:
    seen = facts.seen
    rooms = {
        peer.id: Room(peer.offer.memory_bytes, peer.offer.activation_bytes)
        for peer in facts.peers
        if peer.offer is not None and not peer.unfit
    }
    if small := too_small(seen.job.spec, rooms):
        yield Why(NO_CAPACITY, small)
    if len(facts.chosen) < seen.job.spec.members.min:
        for member in seen.members:
            if member.report and (missing := missing_datasets(seen.job, member)):
                text = f"member {member.name} has no dataset {', '.join(missing)}"
                yield Why(DATASET_MISSING, f"{_ready_sentence(facts)}; {text}")
        yield Why(NOT_ENOUGH_MEMBERS, _ready_sentence(facts))
    num_experts = seen.job.spec.model.resolve().num_experts
    if short := shortage(num_experts, to_candidates(seen.job, facts.chosen)):
        yield Why(NO_CAPACITY, short)
    if not any(peer.live for peer in facts.chosen):
        yield Why(WAITING_FOR_PODS, f"{len(facts.chosen)} trainers are starting")
    if seen.sync is not None and seen.sync.phase is Phase.SEEDING:
        yield Why(SEEDING, "the first version of the model is being made")
    if facts.ready >= seen.job.spec.members.min:
        late = ", ".join(peer.id for peer in facts.chosen if not peer.caught_up)
        yield Why(WAITING_FOR_PODS, f"waiting a moment for {late}, to spare moves")


def _ready_sentence(facts: Facts) -> str:
    members = facts.seen.job.spec.members
    return f"{facts.ready} of at least {members.min} peers are ready"


def _well(facts: Facts) -> Why:
    sync = facts.seen.sync
    tokens = sync.global_tokens if sync else 0
    if facts.complete:
        return Why(MAX_TOKENS_REACHED, f"{tokens:,} tokens are trained")
    return Why(TRAINING, f"{facts.ready} peers train")


def _suspended(facts: Facts) -> Why:
    if facts.seen.job.spec.suspend:
        return Why(SUSPEND_REQUESTED, "spec.suspend is set")
    return Why(AS_EXPECTED)


def _failed(facts: Facts) -> Why | None:
    """No trainer is left that could ever run."""
    failures = [peer for peer in facts.peers if not peer.unfit and peer.failure]
    if not failures or facts.chosen or facts.complete:
        return None
    return Why(TRAINER_FAILED, "; ".join(f"{peer.id}: {peer.failure}" for peer in failures))


def _degraded(facts: Facts) -> Why | None:
    """What is missing while the rest goes on."""
    if facts.seen.sync is None or facts.seen.job.spec.suspend or facts.complete:
        return None
    return next(_defects(facts), None)


def _defects(facts: Facts) -> Iterator[Why]:
    lost, ownership = facts.lost, facts.seen.ownership
    placed = [peer for peer in facts.peers if peer.placed]
    if lost.hold and lost.held:
        end = f", for at most {_seconds(lost.hold.ends_in)}" if lost.hold.ends_in else ""
        who = "; ".join(f"{loss.peer}: {loss.reason}" for loss in lost.held)
        what = "it stays" if _replicated(facts) else "its experts stay"
        yield Why(REASSIGNMENT_HELD, f"{who}; {what}{end}: {lost.hold.reason}")
    if lost.now:
        names = ", ".join(loss.peer for loss in lost.now)
        gone = f"{names} no longer takes part"
        yield Why(REASSIGNING, gone if _replicated(facts) else f"the experts of {names} move")
    if failures := [peer for peer in facts.peers if peer.failure and not peer.unfit]:
        yield Why(TRAINER_FAILED, "; ".join(f"{peer.id}: {peer.failure}" for peer in failures))
    if silent := [p for p in placed if not p.live and p.member_silent_for > p.unreachable_after]:
        yield Why(MEMBER_UNREACHABLE, _unreachable(facts, silent))
    if absent := [peer.id for peer in placed if peer.gone]:
        names = ", ".join(absent)
        yield Why(POD_PREEMPTED, f"{names} has no Session; its trainer is being replaced")
    if ownership and ownership.parked:
        count = len(ownership.parked)
        yield Why(EXPERTS_PARKED, f"memory is missing for {count} experts; they take turns")


def _unreachable(facts: Facts, silent: Sequence[Peer]) -> str:
    limit = facts.seen.job.spec.reassignment.reassign_after_seconds
    names = ", ".join(sorted({member_of(peer.id) for peer in silent}))
    then = "it takes no part" if _replicated(facts) else "its experts move"
    return f"member {names} is silent; {then} {limit} s after its last sign of life"


def _replicated(facts: Facts) -> bool:
    return facts.seen.job.spec.algorithm.replicated


def _seconds(length: timedelta) -> str:
    return f"{length.total_seconds():.0f} s"
