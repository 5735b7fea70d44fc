"""How much each peer's change of the shared parameters counts in an average. Pure.

With p_c the peers' shares, which add up to 1, the average is the sum of p_c m_c. A share goes by
peers, by the tokens trained in the round, or by the samples of a peer's own data (FedAvg's n_c).

FedNova (arXiv 2007.07481) divides each change by its number of local steps a_c, averages, and goes
as far as the average number of steps: otherwise the one that made most steps pulls the model to its
own optimum. The weight of m_c is then

    p_c tau / a_c    with tau = sum of p_c a_c

and what is added is no average any more: these add up to 1 only where all made as many steps.
AdamW's steps count as one each, whatever the gradient, like those of plain SGD.

Where versions are made of the pushes that came first, a change may have missed tau of them. It is
discounted by s(tau), and the whole goes as far as a rate says (FedBuff, arXiv 2106.06639; with one
push a version FedAsync, arXiv 1903.03934):

    Constant    1
    Polynomial  1 / sqrt(1 + tau)
    Hinge       1 up to tau = 4, then 1 / (10 (tau - 4) + 1)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from spes_sync.plan import PeerId

Weights = Literal["Uniform", "Tokens", "Samples"]
Discount = Literal["Constant", "Polynomial", "Hinge"]

# Of FedAsync's hinge, as its paper has them.
_HINGE_SLOPE, _HINGE_START = 10, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a peer did for the change that it pushed; each of these at least 1."""

    steps: int
    tokens: int
    samples: int
    staleness: int = 0
    """Versions that the change has missed; 0 or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighing:
    """A job's way to weigh."""

    weights: Weights = "Uniform"
    by_step: bool = False
    """FedNova."""
    rate: float = 1.0
    discount: Discount = "Constant"

    def of(self, works: Mapping[PeerId, Work]) -> dict[PeerId, float]:
        """The weight of each peer's change."""
        sizes = {peer: self._size(work) for peer, work in works.items()}
        total = sum(sizes.values())
        shares = {peer: size / total for peer, size in sizes.items()}
        if self.by_step:
            steps = sum(share * works[peer].steps for peer, share in shares.items())
            shares = {peer: share * steps / works[peer].steps for peer, share in shares.items()}
        return {
            peer: self.rate * share * discounted(self.discount, works[peer].staleness)
            for peer, share in shares.items()
        }

    def _size(self, work: Work) -> int:
        sizes = {"Uniform": 1, "Tokens": work.tokens, "Samples": work.samples}
        return sizes[self.weights]


def discounted(discount: Discount, staleness: int) -> float:
    """Return s(tau)."""
    if discount == "Polynomial":
        return 1 / math.sqrt(1 + staleness)
    if discount == "Hinge" and staleness > _HINGE_START:
        return 1 / (_HINGE_SLOPE * (staleness - _HINGE_START) + 1)
    return 1.0
