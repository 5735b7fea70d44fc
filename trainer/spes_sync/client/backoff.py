"""Waiting between attempts: exponential, capped, with full jitter."""

from __future__ import annotations

import random
from datetime import timedelta

FIRST = timedelta(seconds=0.2)
LONGEST = timedelta(seconds=5)


class Backoff:
    """How long to wait before the next attempt of one kind of call.

    The jitter spreads the peers that all lost the same server at the same moment.
    """

    def __init__(self, random_source: random.Random | None = None) -> None:
        """Start short; `random_source` is for tests."""
        self._random = random_source or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._attempts = 0

    def reset(self) -> None:
        """An attempt worked."""
        self._attempts = 0

    def next(self, retry_after: timedelta | None = None) -> timedelta:
        """The wait before the next attempt; never below what the server asked for."""
        ceiling = min(LONGEST, FIRST * (1 << min(self._attempts, 16)))
        self._attempts += 1
        wait = ceiling * self._random.uniform(0.5, 1.0)
        return max(wait, retry_after) if retry_after else wait
