"""Which checkpoints of a trainer stay: the newest, and those of the best models. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def kept_checkpoints(
    names: Sequence[str], losses: Mapping[str, float], *, keep_last: int, keep_best: int
) -> frozenset[str]:
    """Return the names that stay.

    Args:
        names: All there are, oldest first.
        losses: Held-out, of those of them whose model was evaluated.
        keep_last: So many of the newest stay whatever their loss.
        keep_best: Of the lowest loss, the newest among them or not; of equal ones the older.
    """
    judged = [name for name in names if name in losses]
    best = sorted(judged, key=lambda name: losses[name])[:keep_best]
    return frozenset({*names[-keep_last:], *best})
