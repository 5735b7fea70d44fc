"""WorkQueue: which keys need a reconcile, and when. Marks of a key collapse into one pass."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from datetime import timedelta
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class WorkQueue(Generic[Key]):
    """Keys with the moment at which each is due; bounded by the number of keys.

    A burst of changes of one object leads to one pass, `debounce` after the first of them.
    """

    def __init__(self, debounce: timedelta) -> None:
        """An empty queue."""
        self._debounce = debounce.total_seconds()
        self._due: dict[Key, float] = {}
        self._earlier = asyncio.Event()

    def mark(self, key: Key, after: timedelta | None = None) -> None:
        """Make `key` due `after` a while, by default the debounce, or sooner if it is already."""
        delay = self._debounce if after is None else after.total_seconds()
        due = asyncio.get_running_loop().time() + delay
        if key not in self._due or due < self._due[key]:
            self._due[key] = due
            self._earlier.set()

    async def take(self) -> Key:
        """Wait for the next key that is due, and remove it."""
        while True:
            self._earlier.clear()
            now = asyncio.get_running_loop().time()
            key = min(self._due, key=self._due.__getitem__, default=None)
            if key is not None and self._due[key] <= now:
                del self._due[key]
                return key
            timeout = None if key is None else self._due[key] - now
            try:
                async with asyncio.timeout(timeout):
                    await self._earlier.wait()
            except TimeoutError:
                continue
