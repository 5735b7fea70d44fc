"""Decides which peer owns which expert: fair by speed, within memory, with the fewest moves.

In this order: every expert has exactly one owner while memory lasts; each peer's count is its
share (see `quota`) rounded down or up; as few experts as possible change owner; ties go by peer id,
then by expert id, so the same input gives the same plan. The fewest possible moves are known
beforehand (the lower bound), and this plan always attains them. Pure; the hub calls it when members
come, go or change speed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from spes_operator.names import ExpertId, PeerId
from spes_operator.placement.decision import Candidate, Move, Placement
from spes_operator.placement.explanation import Explained, explain_placement
from spes_operator.placement.quota import effective_rates, fair_shares


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seat:
    """A peer's situation: what it owns of the experts to be placed, and how many it may own."""

    candidate: Candidate
    share: Fraction
    owned: tuple[ExpertId, ...]

    @property
    def least(self) -> int:
        return floor(self.share)

    @property
    def most(self) -> int:
        return min(self.candidate.places, ceil(self.share))

    @property
    def nearest(self) -> int:
        """The allowed count that moves least."""
        return max(self.least, min(len(self.owned), self.most))


def place(
    num_experts: int,
    candidates: Sequence[Candidate],
    *,
    owners: Mapping[ExpertId, PeerId],
    routed_tokens: Mapping[ExpertId, int],
    rotation: int = 0,
) -> Placement:
    """The ownership that follows from the present one.

    Args:
        num_experts: Experts 0 to num_experts - 1.
        candidates: Peers that may own experts; in any order, each once.
        owners: Who owns what now; peers that are no candidates count as gone.
        routed_tokens: Tokens each expert has seen since it last moved; absent: none. A peer gives
            up the experts that have seen least, whose moments are worth least.
        rotation: Which experts are parked when memory is short; one more parks the next ones.
    """
    rates = effective_rates(candidates)
    shares = fair_shares(num_experts, candidates, rates)
    num_placed = min(num_experts, sum(candidate.places for candidate in candidates))
    parked = _parked(num_experts, num_experts - num_placed, routed_tokens, rotation)
    experts = [expert for expert in map(ExpertId, range(num_experts)) if expert not in set(parked)]
    seats = _seats(candidates, shares, experts, owners)
    counts = _counts(seats, len(experts))
    moves = _moves(seats, counts, experts, owners=owners, routed_tokens=routed_tokens)
    targets = {move.expert: move.target for move in moves}
    explained = Explained(
        num_experts=num_experts,
        candidates=[seat.candidate for seat in seats],
        shares=shares,
        counts=counts,
        moves=moves,
        parked=parked,
    )
    return Placement(
        owners={expert: targets.get(expert) or owners[expert] for expert in experts},
        parked=parked,
        moves=moves,
        quota={peer: float(share) for peer, share in sorted(shares.items())},
        lower_bound=_lower_bound(seats, len(experts)),
        utilisation=_utilisation(num_experts, seats, rates, counts),
        reasons=explain_placement(explained),
    )


def _parked(
    num_experts: int, deficit: int, routed_tokens: Mapping[ExpertId, int], rotation: int
) -> tuple[ExpertId, ...]:
    """The experts to freeze: the most trained first, and other ones with each rotation."""
    order = sorted(
        map(ExpertId, range(num_experts)),
        key=lambda expert: (-routed_tokens.get(expert, 0), expert),
    )
    first = rotation * deficit
    return tuple(sorted(order[(first + offset) % num_experts] for offset in range(deficit)))


def _seats(
    candidates: Sequence[Candidate],
    shares: Mapping[PeerId, Fraction],
    experts: Sequence[ExpertId],
    owners: Mapping[ExpertId, PeerId],
) -> list[_Seat]:
    owned: dict[PeerId, list[ExpertId]] = {candidate.peer: [] for candidate in candidates}
    for expert in experts:
        if (owner := owners.get(expert)) in owned:
            owned[owner].append(expert)
    return [
        _Seat(
            candidate=candidate,
            share=shares[candidate.peer],
            owned=tuple(owned[candidate.peer]),
        )
        for candidate in sorted(candidates, key=lambda candidate: candidate.peer)
    ]


def _counts(seats: Sequence[_Seat], num_placed: int) -> dict[PeerId, int]:
    """How many experts each peer gets: the nearest allowed counts, corrected to sum up.

    A share lies between two neighbouring whole numbers, so nobody is raised or lowered twice.
    """
    counts = {seat.candidate.peer: seat.nearest for seat in seats}
    missing = num_placed - sum(counts.values())
    if missing > 0:
        open_seats = [seat for seat in seats if seat.nearest < seat.most]
        open_seats.sort(key=lambda seat: seat.nearest - seat.share)
        for seat in open_seats[:missing]:
            counts[seat.candidate.peer] += 1
    elif missing < 0:
        full_seats = [seat for seat in seats if seat.nearest > seat.least]
        full_seats.sort(key=lambda seat: seat.share - seat.nearest)
        for seat in full_seats[:-missing]:
            counts[seat.candidate.peer] -= 1
    return counts


def _moves(
    seats: Sequence[_Seat],
    counts: Mapping[PeerId, int],
    experts: Sequence[ExpertId],
    *,
    owners: Mapping[ExpertId, PeerId],
    routed_tokens: Mapping[ExpertId, int],
) -> tuple[Move, ...]:
    """Experts without an owner go first; the peer furthest below its share receives first."""
    kept: set[ExpertId] = set()
    given: list[ExpertId] = []
    for seat in seats:
        surplus = max(0, len(seat.owned) - counts[seat.candidate.peer])
        least_trained = sorted(seat.owned, key=lambda one: (routed_tokens.get(one, 0), -one))
        given += least_trained[:surplus]
        kept |= set(least_trained[surplus:])
    orphans = set(experts) - kept - set(given)
    waiting = iter([*sorted(orphans), *sorted(given)])
    moves: list[Move] = []
    for seat in sorted(seats, key=lambda seat: len(seat.owned) - seat.share):
        for _ in range(counts[seat.candidate.peer] - len(seat.owned)):
            expert = next(waiting)
            moves.append(Move(expert=expert, source=owners.get(expert), target=seat.candidate.peer))
    return tuple(sorted(moves, key=lambda move: move.expert))


def _lower_bound(seats: Sequence[_Seat], num_placed: int) -> int:
    """Moves that no plan within the shares can avoid.

    Peers below their least must receive; experts without an owner, and those above a peer's most,
    must go somewhere. Every move is an arrival, so the larger of the two numbers counts.
    """
    arrivals = sum(max(0, seat.least - len(seat.owned)) for seat in seats)
    orphans = num_placed - sum(len(seat.owned) for seat in seats)
    departures = sum(max(0, len(seat.owned) - seat.most) for seat in seats)
    return max(arrivals, orphans + departures)


def _utilisation(
    num_experts: int,
    seats: Sequence[_Seat],
    rates: Mapping[PeerId, Fraction],
    counts: Mapping[PeerId, int],
) -> float:
    """A peer sees tokens in proportion to its speed, and trains on those that hit its experts."""
    peers = [seat.candidate.peer for seat in seats if seat.candidate.capacity >= 0]
    speed = sum((rates[peer] for peer in peers), Fraction(0))
    used = sum((rates[peer] * counts[peer] for peer in peers), Fraction(0))
    return float(used / speed / num_experts) if speed else 0.0
