"""In which order sequences are trained: endless, random, the same for everyone who shares it. Pure.

Every source is passed over again and again, each pass a permutation of all its sequences. A job of
several sources draws from them in proportion to their weights: position by position, in blocks of
`BLOCK` positions. In every block a source has the same number of places, its share rounded to whole
sequences and at least one; where in the block they are is drawn anew. So a source of a third of the
size and the same weight is passed over three times while the other is passed over once, and a
position says by itself which sequence it is: nothing but the position is needed to resume.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Split = Literal["Disjoint", "Overlap", "Local"]

# Positions among which weights are rounded to whole sequences.
BLOCK = 1024


class Share(NamedTuple):
    """One source: how much it has, how much of it is wanted."""

    num_sequences: int
    weight: float


class Pick(NamedTuple):
    """One sequence."""

    source: int
    sequence: int


class SequenceOrder:
    """The endless order of all sequences of a job.

    With `Disjoint` all peers share one order and the sync server leases parts of it, so no sequence
    is trained twice in a pass. With `Overlap` and `Local` each peer has an order of its own.
    """

    def __init__(self, shares: Sequence[Share], *, seed: int, split: Split, peer: str) -> None:
        """Draw nothing yet; `peer` matters unless the order is shared."""
        own = [] if split == "Disjoint" else [*hashlib.sha256(peer.encode()).digest()]
        entropy, alone = (seed, *own), len(shares) == 1
        self._passes = [
            _Passes(share.num_sequences, entropy, () if alone else (source,))
            for source, share in enumerate(shares)
        ]
        self._mixture = None if alone else _Mixture([s.weight for s in shares], entropy)

    def at(self, positions: Sequence[int]) -> list[Pick]:
        """Return the sequences at some positions of the order, counted from 0 over all passes."""
        return [self._at(position) for position in positions]

    def _at(self, position: int) -> Pick:
        source, draw = (0, position) if self._mixture is None else self._mixture.at(position)
        return Pick(source, self._passes[source].at(draw))


class _Passes:
    """The sequences of one source, permuted anew for every pass."""

    def __init__(
        self, num_sequences: int, entropy: tuple[int, ...], spawn_key: tuple[int, ...]
    ) -> None:
        self._num_sequences = num_sequences
        self._entropy = entropy
        self._spawn_key = spawn_key
        self._number = -1
        self._permutation: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def at(self, draw: int) -> int:
        """The sequence that this source gives when it is drawn from for the `draw`-th time."""
        number, offset = divmod(draw, self._num_sequences)
        if number != self._number:
            generator = _generator((*self._entropy, number), self._spawn_key)
            self._permutation = generator.permutation(self._num_sequences)
            self._number = number
        return int(self._permutation[offset])


class _Mixture:
    """Which source each position draws from, and for which time."""

    def __init__(self, weights: Sequence[float], entropy: tuple[int, ...]) -> None:
        self._places = np.array(apportion(BLOCK, weights, least=1))
        self._entropy = entropy
        self._block = -1
        self._sources: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._draws: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def at(self, position: int) -> tuple[int, int]:
        """A source, and how often it was drawn from before."""
        block, offset = divmod(position, BLOCK)
        if block != self._block:
            self._draw(block)
        return int(self._sources[offset]), int(self._draws[offset])

    def _draw(self, block: int) -> None:
        num_sources = len(self._places)
        generator = _generator((*self._entropy, block), (num_sources,))
        self._sources = generator.permutation(np.repeat(np.arange(num_sources), self._places))
        self._draws = np.empty(BLOCK, dtype=np.int64)
        for source, places in enumerate(self._places.tolist()):
            self._draws[self._sources == source] = block * places + np.arange(places)
        self._block = block


def apportion(total: int, weights: Sequence[float], *, least: int = 0) -> list[int]:
    """Split a whole number in proportion to weights, by largest remainder; ties go to the first.

    Args:
        total: What is split; at least `least` for each.
        weights: All above 0.
        least: What each gets even if its weight is next to nothing.
    """
    quotas = [total * weight / sum(weights) for weight in weights]
    parts = [max(least, int(quota)) for quota in quotas]
    indices = range(len(parts))
    while sum(parts) < total:
        parts[max(indices, key=lambda i: quotas[i] - parts[i])] += 1
    while sum(parts) > total:
        above = [i for i in indices if parts[i] > least]
        parts[max(above, key=lambda i: parts[i] - quotas[i])] -= 1
    return parts


def _generator(entropy: tuple[int, ...], spawn_key: tuple[int, ...]) -> np.random.Generator:
    sequence = np.random.SeedSequence(list(entropy), spawn_key=spawn_key)
    return np.random.Generator(np.random.PCG64(sequence))
