"""File and numpy work off the event loop, in a bounded pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """A pool whose work is always waited for, so that what it uses can be closed safely."""

    def __init__(self, num_threads: int, name: str) -> None:
        """Start threads as they are needed, at most `num_threads`."""
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix=name)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking function; a cancelled caller still waits for it to end."""
        future = self._pool.submit(function, *args, **kwargs)
        wrapped = asyncio.wrap_future(future)
        try:
            return await asyncio.shield(wrapped)
        except asyncio.CancelledError:
            await asyncio.wait([wrapped])
            raise

    def close(self) -> None:
        """Wait for what runs and end the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)
