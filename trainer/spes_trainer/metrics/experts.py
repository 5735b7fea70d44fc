"""How evenly the router uses the experts of a model. Pure.

An expert here is that of one layer; what peers own is an index, the experts of that index in all
layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

# An expert that gets less than this part of an even share is dead: it is hardly trained.
DEAD_BELOW = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLoad:
    """Of some steps."""

    shares: tuple[float, ...]
    """Part of the routed tokens that each expert index got, over all layers; they add up to 1."""
    utilisation: float
    """Experts that are in effect used, as a part of all: the exponential of the entropy of a
    layer's shares, divided by the number of experts, averaged over the layers. 1: evenly."""
    highest: float
    """Tokens of the expert with most, in units of an even share of its layer. 1 more than the
    maximal violation of arXiv 2408.15664."""
    dead: tuple[str, ...]
    """Experts below `DEAD_BELOW`, named as their weights are."""

    @classmethod
    def of(cls, routed: NDArray[np.int64]) -> Self:
        """Of the tokens that each expert of each layer got: a row per layer, none of them empty."""
        num_experts = routed.shape[1]
        shares = routed / routed.sum(axis=1, keepdims=True)
        logarithms = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
        in_use = np.exp(-(shares * logarithms).sum(axis=1)) / num_experts
        dead = np.argwhere(shares * num_experts < DEAD_BELOW)
        return cls(
            shares=tuple((routed.sum(axis=0) / routed.sum()).tolist()),
            utilisation=float(in_use.mean()),
            highest=float(shares.max() * num_experts),
            dead=tuple(f"layers.{layer}.experts.{expert}" for layer, expert in dead.tolist()),
        )
