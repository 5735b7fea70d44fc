"""Which steps of a long run are kept: all of the newest, of older ones ever fewer. Pure.

Memory of a run of n steps grows with log n, and its whole course stays visible.
"""

from __future__ import annotations

# Steps that are kept whole. Each doubling of age beyond keeps half as many again.
WHOLE = 4096


def stride(distance: int) -> int:
    """Every how many steps one is kept at a distance: a power of two that grows with it.

    What is kept at a distance is kept at every smaller one, so thinning again loses nothing else.
    """
    return 1 << (distance // WHOLE).bit_length()


def kept(step: int, *, newest: int) -> bool:
    """Whether a step is still kept when the run has come to `newest`."""
    return step % stride(newest - step) == 0
