"""Each peer's fair share of experts.

Faster peers see more tokens, so an expert learns more on a fast peer: shares are in proportion to
speed. Where memory caps a peer, the others take over what it cannot hold, again in proportion
(water-filling): q_i = min(capacity_i, x * rate_i), with the x that makes them sum to the number of
experts. Exact fractions, so that floor and ceiling never depend on rounding. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from spes_operator.names import PeerId
from spes_operator.placement.decision import Candidate


def effective_rates(candidates: Sequence[Candidate]) -> dict[PeerId, Fraction]:
    """Each peer's speed; one not measured yet counts as the mean of the others, or 1 if none is."""
    known = [Fraction(rate) for candidate in candidates if (rate := candidate.known_rate)]
    mean = sum(known, Fraction(0)) / len(known) if known else Fraction(1)
    return {
        candidate.peer: Fraction(candidate.known_rate) if candidate.known_rate else mean
        for candidate in candidates
    }


def fair_shares(
    num_experts: int, candidates: Sequence[Candidate], rates: Mapping[PeerId, Fraction]
) -> dict[PeerId, Fraction]:
    """Shares that sum to `num_experts`, or to all the places there are if those are fewer."""
    shares: dict[PeerId, Fraction] = {}
    left = Fraction(min(num_experts, sum(candidate.places for candidate in candidates)))
    rate_left = sum((rates[candidate.peer] for candidate in candidates), Fraction(0))
    # Who fills up first comes first: whatever it leaves raises the others' shares.
    for candidate in sorted(candidates, key=lambda one: (one.places / rates[one.peer], one.peer)):
        rate = rates[candidate.peer]
        share = min(Fraction(candidate.places), left * rate / rate_left)
        shares[candidate.peer] = share
        left -= share
        rate_left -= rate
    return shares
