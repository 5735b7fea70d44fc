"""How long to wait before what failed is tried again: twice as long each time, up to a cap."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta

# Beyond this many doublings any cap is reached; numbers stay small.
_MAX_DOUBLINGS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The waits of one kind of attempt."""

    first: timedelta
    longest: timedelta

    def after(self, failures: int, *, jitter: float) -> timedelta:
        """The wait after so many failures in a row, from 1; `jitter` in [0, 1) spreads it.

        The whole wait at jitter 1, half of it at 0, so that those who failed together do not come
        back together.
        """
        full = min(self.longest, self.first * float(2 ** min(failures - 1, _MAX_DOUBLINGS)))
        return full * (0.5 + jitter / 2)

    def drawn(self, failures: int) -> timedelta:
        """As `after`, with a jitter drawn now."""
        return self.after(failures, jitter=random.random())  # noqa: S311 - no secret
