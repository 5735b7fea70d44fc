"""How many failed Joins are looked into: some at once, then a few a minute. Pure.

A token cannot be guessed; what is limited is the trouble that a stranger, or a peer whose token has
expired, can make by trying without end: journal lines and log. Asked only once a token has failed,
so it never keeps a peer out whose token is good, wherever the others come from.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from datetime import timedelta

# Failures that are free, and how long it takes until one more is.
BURST = 20
PERIOD = timedelta(seconds=3)
# Addresses and peers that are remembered; the longest quiet is forgotten first.
MAX_REMEMBERED = 1024


class FailedJoins:
    """One budget for each address and for each peer that somebody said to be."""

    def __init__(self) -> None:
        """Nobody has failed yet."""
        # When the budget of each is full again, in monotonic seconds.
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._full_at)

    def count(self, keys: Iterable[str], now: float) -> timedelta | None:
        """Count a failure against each key; how long to wait if one has used up its budget."""
        period, wait = PERIOD.total_seconds(), 0.0
        for key in keys:
            full_at = max(now, self._full_at.pop(key, now)) + period
            over = full_at - now - BURST * period
            self._full_at[key] = full_at - max(0.0, over)
            wait = max(wait, over)
        while len(self._full_at) > MAX_REMEMBERED:
            self._full_at.popitem(last=False)
        return timedelta(seconds=wait) if wait > 0 else None
