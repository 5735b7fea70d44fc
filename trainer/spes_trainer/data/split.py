"""Which documents are held out for evaluation: by hash of their names alone. Pure.

A document stays on its side when others come or go, and is on the same side on every member.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def is_held_out(name: str, fraction: float) -> bool:
    """Whether one of many documents, such as a row, is held out."""
    return _hash_fraction(name) < fraction


def held_out(names: Sequence[str], fraction: float) -> frozenset[str]:
    """The held-out ones of all documents of a source, where there may be few.

    With a fraction above 0 at least one of two or more documents is held out, and at least one is
    not.
    """
    if fraction == 0 or len(names) < 2:  # noqa: PLR2004 - one stays
        return frozenset()
    ranked = sorted(names, key=lambda name: (_hash_fraction(name), name))
    below = sum(is_held_out(name, fraction) for name in ranked)
    return frozenset(ranked[: min(max(below, 1), len(ranked) - 1)])


def _hash_fraction(name: str) -> float:
    """A number in [0, 1) that depends on the name alone."""
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:7], "big") / float(1 << 56)
