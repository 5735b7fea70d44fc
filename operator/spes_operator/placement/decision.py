"""What placement is asked and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from spes_operator.names import ExpertId, PeerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A peer that experts can be placed on."""

    peer: PeerId
    capacity: int
    """Experts that fit in its memory; 0: shared parameters only; negative: not even those."""
    rate: float | None
    """Tokens per second; None: not measured yet."""

    @property
    def known_rate(self) -> float | None:
        """The rate if it can be used: a peer's report may also be 0, infinite or no number."""
        rate = self.rate
        return rate if rate is not None and isfinite(rate) and rate > 0 else None

    @property
    def places(self) -> int:
        """Experts it can own."""
        return max(self.capacity, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One expert gets a new owner. No weights travel: every peer holds all of them."""

    expert: ExpertId
    source: PeerId | None
    """None: it had no owner."""
    target: PeerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The decision, with what is needed to judge it."""

    owners: Mapping[ExpertId, PeerId]
    parked: tuple[ExpertId, ...]
    """Experts that no memory is left for; frozen, never dropped."""
    moves: tuple[Move, ...]
    quota: Mapping[PeerId, float]
    """Each peer's fair share of experts: by speed, as far as its memory allows."""
    lower_bound: int
    """No placement within the quotas moves fewer experts."""
    utilisation: float
    """Expected share of routed tokens that train the expert they are routed to."""
    reasons: tuple[str, ...]
    """One sentence per peer, per move, and on what is parked."""


# Where every peer trains every expert: no expert has an owner.
NOTHING_PLACED = Placement(
    owners={}, parked=(), moves=(), quota={}, lower_bound=0, utilisation=1.0, reasons=()
)
