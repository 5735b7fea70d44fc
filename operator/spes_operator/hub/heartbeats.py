"""When the hub last saw each member's heartbeat change, by the hub's own clock. No I/O.

The times inside the Leases decide nothing: two clusters' clocks differ. The last one is kept for
people, who want to know that they do.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

# A member counts as silent after this many of its heartbeat intervals.
SILENT_INTERVALS = 4


@dataclass(slots=True)
class _Heard:
    text: str
    at: float
    back_at: float | None = None
    changed: bool = False


class Heartbeats:
    """The signs of life of every member since the hub started."""

    def __init__(self, started_at: float) -> None:
        """Begin at a moment of the hub's monotonic clock; nobody counts as silent before it."""
        self._started_at = started_at
        self._heard: dict[str, _Heard] = {}

    def observe(self, member: str, renew_time: str, *, now: float, interval: timedelta) -> None:
        """Note what the member's Lease says; only a change is a sign of life."""
        heard = self._heard.get(member)
        if heard is None:
            self._heard[member] = _Heard(renew_time, now)
        elif heard.text != renew_time:
            was_silent = now - heard.at > SILENT_INTERVALS * interval.total_seconds()
            heard.back_at = now if was_silent else heard.back_at
            heard.text, heard.at, heard.changed = renew_time, now, True

    def keep_only(self, members: Collection[str]) -> None:
        """Forget everyone else: who is invited again under a name begins anew."""
        self._heard = {name: heard for name, heard in self._heard.items() if name in members}

    def silent_for(self, member: str, *, now: float) -> timedelta:
        """Since the last sign of life; one that was never heard counts from the hub's start."""
        heard = self._heard.get(member)
        return timedelta(seconds=now - (heard.at if heard else self._started_at))

    def back_for(self, member: str, *, now: float) -> timedelta | None:
        """Since its last return from a silence; None if it never was silent."""
        heard = self._heard.get(member)
        if heard is None or heard.back_at is None:
            return None
        return timedelta(seconds=now - heard.back_at)

    def renewed(self, member: str) -> str:
        """What the Lease said at the last change; empty if none was seen since the hub started."""
        heard = self._heard.get(member)
        return heard.text if heard is not None and heard.changed else ""
