"""Which documents are held out, and in which order sequences are trained. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Split = Literal["Disjoint", "Overlap", "Local"]


def held_out(names: Sequence[str], fraction: float) -> frozenset[str]:
    """Return the documents kept for evaluation: those whose name hashes below the fraction.

    A document stays on its side when others come or go. With a fraction above 0 at least one of two
    or more documents is held out, and at least one is not.
    """
    if fraction == 0 or len(names) < 2:  # noqa: PLR2004
        return frozenset()
    ranked = sorted(names, key=lambda name: (_hash_fraction(name), name))
    below = sum(_hash_fraction(name) < fraction for name in ranked)
    return frozenset(ranked[: min(max(below, 1), len(ranked) - 1)])


def _hash_fraction(name: str) -> float:
    """A number in [0, 1) that depends on the name alone."""
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:7], "big") / float(1 << 56)


class SequenceOrder:
    """The endless order in which sequences are trained: each epoch a permutation of all of them.

    With `Disjoint` all peers share one order and the sync server leases parts of it, so no sequence
    is trained twice in an epoch. With `Overlap` and `Local` each peer has an order of its own.
    """

    def __init__(self, num_sequences: int, *, seed: int, split: Split, peer: str) -> None:
        """Draw nothing yet; `peer` matters unless the order is shared."""
        self._num_sequences = num_sequences
        own = [] if split == "Disjoint" else [*hashlib.sha256(peer.encode()).digest()]
        self._entropy = [seed, *own]
        self._epoch = -1
        self._permutation: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def at(self, positions: Sequence[int]) -> list[int]:
        """Return the sequences at some positions of the order, counted from 0 over all epochs."""
        return [self._at(position) for position in positions]

    def _at(self, position: int) -> int:
        epoch, offset = divmod(position, self._num_sequences)
        if epoch != self._epoch:
            generator = np.random.Generator(np.random.PCG64([*self._entropy, epoch]))
            self._permutation = generator.permutation(self._num_sequences)
            self._epoch = epoch
        return int(self._permutation[offset])
