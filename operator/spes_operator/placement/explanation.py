"""Says in sentences why a placement is as it is. Pure; the sentences reach events and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from spes_api.ranges import format_ranges

from spes_operator.names import ExpertId, PeerId
from spes_operator.placement.decision import Candidate, Move


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """What the sentences are about."""

    num_experts: int
    candidates: Sequence[Candidate]
    shares: Mapping[PeerId, Fraction]
    counts: Mapping[PeerId, int]
    moves: Sequence[Move]
    parked: Sequence[ExpertId]


def explain_placement(seen: Explained) -> tuple[str, ...]:
    """One sentence per peer, one per move, one on the parked experts if there are any."""
    peers = [_peer_sentence(candidate, seen) for candidate in seen.candidates]
    moves = [_move_sentence(move, seen) for move in seen.moves]
    parked = [_parked_sentence(seen)] if seen.parked else []
    return (*peers, *moves, *parked)


def shortage(num_experts: int, candidates: Sequence[Candidate]) -> str | None:
    """What is missing if memory cannot hold every expert once, with the numbers; None: enough."""
    places = sum(candidate.places for candidate in candidates)
    if places >= num_experts:
        return None
    each = ", ".join(
        f"{candidate.peer} {candidate.places}"
        for candidate in sorted(candidates, key=lambda candidate: candidate.peer)
    )
    return (
        f"{num_experts} experts need an owner, but the peers have memory for {places} "
        f"({each or 'no peers'}); add members or memory, or take a smaller model"
    )


def _peer_sentence(candidate: Candidate, seen: Explained) -> str:
    peer, count = candidate.peer, seen.counts[candidate.peer]
    if candidate.capacity < 0:
        return f"{peer} owns no expert: its memory cannot hold the model"
    if candidate.capacity == 0:
        return f"{peer} owns no expert: its memory has room for the shared parameters only"
    share = seen.shares[peer]
    limit = (
        f"all that its memory holds ({candidate.capacity})"
        if share == candidate.capacity
        else f"its share by speed is {float(share):.2f}, its memory holds {candidate.capacity}"
    )
    speed = "" if candidate.known_rate else "; its speed is not measured yet"
    return f"{peer} owns {count} of {seen.num_experts} experts: {limit}{speed}"


def _move_sentence(move: Move, seen: Explained) -> str:
    if move.source is None:
        return f"expert {move.expert} goes to {move.target}: it had no owner"
    share = seen.shares.get(move.source)
    why = "is gone" if share is None else f"had more than its share of {float(share):.2f}"
    return f"expert {move.expert} moves from {move.source} to {move.target}: {move.source} {why}"


def _parked_sentence(seen: Explained) -> str:
    places = seen.num_experts - len(seen.parked)
    return (
        f"experts {format_ranges(seen.parked)} are parked: "
        f"the peers have memory for {places} of {seen.num_experts}"
    )
