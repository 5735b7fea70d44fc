"""The clock that controllers are given; tests give one that they turn by hand."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time for what people read, monotonic time for every duration."""

    def now(self) -> datetime:
        """Time of day, UTC."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never set back."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of monotonic time."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Time of day, UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        await asyncio.sleep(seconds)
