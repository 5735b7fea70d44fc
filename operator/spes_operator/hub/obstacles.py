"""Why a job has too few peers, or has not begun: the first reason explains the others. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from spes_operator.hub.candidates import to_candidates
from spes_operator.hub.causes import failures, hindrance, hindrances
from spes_operator.hub.facts import Facts, Why
from spes_operator.hub.peers import missing_datasets, objections
from spes_operator.hub.sync_state import Phase
from spes_operator.names import PeerId
from spes_operator.placement.explanation import shortage
from spes_operator.placement.slots import Room, too_small
from spes_operator.reasons import (
    DATASET_MISSING,
    NO_CAPACITY,
    NOT_ENOUGH_MEMBERS,
    SEEDING,
    WAITING_FOR_PODS,
)

# Members that are not used and named in one sentence; more make it no clearer.
_MOST_NAMED = 3


def not_started(facts: Facts) -> Why:
    """Why no expert is placed yet."""
    return next(_obstacles(facts), Why(WAITING_FOR_PODS, facts.ready_sentence))


def too_few(facts: Facts) -> Iterator[Why]:
    """Why fewer peers than members.min take part in a job that has begun."""
    yield from hindrances(facts.peers)
    yield Why(NOT_ENOUGH_MEMBERS, f"{facts.ready_sentence}{_unused(facts)}")


def _obstacles(facts: Facts) -> Iterator[Why]:
    seen, least = facts.seen, facts.seen.job.spec.members.min
    if small := too_small(seen.job.spec, _rooms(facts)):
        yield Why(NO_CAPACITY, small)
    if len(facts.chosen) < least:
        yield from _missing_data(facts)
        yield from failures(facts.peers)
        yield Why(NOT_ENOUGH_MEMBERS, f"{facts.ready_sentence}{_unused(facts)}")
    num_experts = seen.job.spec.model.resolve().num_experts
    if short := shortage(num_experts, to_candidates(seen.job, facts.chosen)):
        yield Why(NO_CAPACITY, short)
    free = [peer for peer in facts.chosen if hindrance(peer) is None]
    if len(free) < least or shortage(num_experts, to_candidates(seen.job, free)):
        yield from hindrances(facts.chosen)
    if not any(peer.live for peer in facts.chosen):
        yield Why(WAITING_FOR_PODS, f"{len(facts.chosen)} trainers are starting")
    if seen.sync is not None and seen.sync.phase is Phase.SEEDING:
        yield Why(SEEDING, "the first version of the model is being made")
    if facts.ready >= least:
        late = ", ".join(peer.id for peer in facts.chosen if not peer.caught_up)
        yield Why(WAITING_FOR_PODS, f"waiting a moment for {late}, to spare moves")


def _rooms(facts: Facts) -> dict[PeerId, Room]:
    return {
        peer.id: Room(peer.offer.memory_bytes, peer.offer.activation_bytes)
        for peer in facts.peers
        if peer.offer is not None and not peer.unfit
    }


def _missing_data(facts: Facts) -> Iterator[Why]:
    for member in facts.seen.members:
        if member.report and (missing := missing_datasets(facts.seen.job, member)):
            text = f"member {member.name} has no dataset {', '.join(missing)}"
            yield Why(DATASET_MISSING, f"{facts.ready_sentence}; {text}")


def _unused(facts: Facts) -> str:
    """The end of a sentence: members that do not help, and why."""
    job, members = facts.seen.job, facts.seen.members
    if not members:
        return "; there is no member, invite one with: spes invite NAME"
    told = [why for member in members if (why := next(objections(job, member), ""))]
    more = len(told) - _MOST_NAMED
    named = "".join(f"; {one}" for one in told[:_MOST_NAMED])
    return f"{named}; {more} more are not used" if more > 0 else named
