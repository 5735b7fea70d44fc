"""How much each peer's change of the shared parameters counts in an average. Pure.

With p_c the peers' shares, which add up to 1, the average is the sum of p_c m_c. A share goes by
peers, by the tokens trained in the round, or by the samples of a peer's own data (FedAvg's n_c).

FedNova (arXiv 2007.07481) divides each change by its number of local steps a_c, averages, and goes
as far as the average number of steps: otherwise the one that made most steps pulls the model to its
own optimum. The weight of m_c is then

    p_c tau / a_c    with tau = sum of p_c a_c

and what is added is no average any more: these add up to 1 only where all made as many steps.
AdamW's steps count as one each, whatever the gradient, like those of plain SGD.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from spes_sync.plan import PeerId

Weights = Literal["Uniform", "Tokens", "Samples"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a peer did for the change that it pushed; each at least 1."""

    steps: int
    tokens: int
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighing:
    """A job's way to weigh."""

    weights: Weights = "Uniform"
    by_step: bool = False
    """FedNova."""

    def of(self, works: Mapping[PeerId, Work]) -> dict[PeerId, float]:
        """The weight of each peer's change."""
        sizes = {peer: self._size(work) for peer, work in works.items()}
        total = sum(sizes.values())
        shares = {peer: size / total for peer, size in sizes.items()}
        if not self.by_step:
            return shares
        steps = sum(share * works[peer].steps for peer, share in shares.items())
        return {peer: share * steps / works[peer].steps for peer, share in shares.items()}

    def _size(self, work: Work) -> int:
        sizes = {"Uniform": 1, "Tokens": work.tokens, "Samples": work.samples}
        return sizes[self.weights]
