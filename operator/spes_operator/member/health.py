"""How an agent is: whether its loops go round, and when it last heard from its hub.

Read by the probes and by the metrics. A hub that cannot be reached makes the agent not ready; it
never makes it dead, or a cut of the network would restart it for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Literal, TypeAlias

from spes_operator.clock import Clock

Loop: TypeAlias = Literal["lease", "resync"]

# A loop is dead when its last attempt, failed or not, ended this many periods ago.
_PERIODS = 3
# Of an attempt that finds no answer; longer than the deadline of one request.
_LONGEST_ATTEMPT = timedelta(seconds=30)
# Without an answer for so many heartbeats the hub counts as away.
_HEARTBEATS = 3


class MemberHealth:
    """Times of the last attempts and of the last answer, by this machine's own clock."""

    def __init__(self, clock: Clock, periods: Mapping[Loop, timedelta]) -> None:
        """`periods`: how often each loop goes round. The first attempts are due from now on."""
        self._clock = clock
        self._limits = {
            loop: _PERIODS * (period + _LONGEST_ATTEMPT) for loop, period in periods.items()
        }
        self._attempted_at = dict.fromkeys(periods, clock.monotonic())
        self._away_after = _HEARTBEATS * periods["lease"]
        self._heard_at: float | None = None
        self._started_at = clock.monotonic()

    def attempted(self, loop: Loop) -> None:
        """A round of the loop has ended, with success or with an error."""
        self._attempted_at[loop] = self._clock.monotonic()

    def heard(self) -> None:
        """The hub has answered, and has not refused."""
        self._heard_at = self._clock.monotonic()

    @property
    def hub_silent_for(self) -> timedelta:
        """Since its last answer; since the start if there was none."""
        since = self._started_at if self._heard_at is None else self._heard_at
        return timedelta(seconds=self._clock.monotonic() - since)

    @property
    def reaches_hub(self) -> bool:
        """It answered lately."""
        return self._heard_at is not None and self.hub_silent_for <= self._away_after

    def stuck_loops(self) -> tuple[Loop, ...]:
        """Loops that do not go round any more."""
        now = self._clock.monotonic()
        return tuple(
            loop
            for loop, limit in self._limits.items()
            if now - self._attempted_at[loop] > limit.total_seconds()
        )
