"""The clock that controllers are given; tests give one that they turn by hand."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Wall time for what people read, monotonic time for every duration."""

    def now(self) -> datetime:
        """Time of day, UTC."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never set back."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Time of day, UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""
        return time.monotonic()


def to_text(moment: datetime) -> str:
    """The moment as Kubernetes writes it, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def from_text(text: str) -> datetime:
    """The moment that `to_text` or another Kubernetes client wrote.

    Raises:
        ValueError: Not a timestamp with a time zone.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"a timestamp needs a time zone (got {text!r:.40})")
    return moment


def in_seconds(length: timedelta) -> str:
    """A length of time as messages say it, to the second."""
    return f"{length.total_seconds():.0f} s"
