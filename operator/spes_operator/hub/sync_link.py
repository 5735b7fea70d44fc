"""SyncLink: keeps the hub's picture of one sync server up to date, whatever the connection does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from spes_operator.backoff import Backoff
from spes_operator.clock import Clock
from spes_operator.errors import ConflictError, UnavailableError
from spes_operator.hub.sync_control import SyncControl
from spes_operator.hub.sync_state import SyncState

logger = logging.getLogger(__name__)

# Before a broken watch is tried again.
_RETRIES = Backoff(first=timedelta(seconds=0.2), longest=timedelta(seconds=5))


class SyncLink:
    """One sync server's state, followed in the background."""

    def __init__(
        self, endpoint: str, control: SyncControl, clock: Clock, on_change: Callable[[], None]
    ) -> None:
        """Begin to follow; `on_change` is called for every other state and for every loss."""
        self.endpoint = endpoint
        self.control = control
        self._clock = clock
        self._on_change = on_change
        self._state: SyncState | None = None
        self._received = 0.0
        self.is_opening = True
        """It has neither answered nor failed to yet: nothing can be said of the server."""
        self._task = asyncio.create_task(self._follow())

    @property
    def state(self) -> SyncState | None:
        """As of now; None while the server is away."""
        if self._state is None:
            return None
        return aged(self._state, timedelta(seconds=self._clock.monotonic() - self._received))

    async def close(self) -> None:
        """Stop following."""
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.control.close()

    async def _follow(self) -> None:
        failures = 0
        while True:
            try:
                async for state in self.control.watch():
                    failures, self.is_opening = 0, False
                    is_new = state != self._state  # a quiet server repeats itself
                    self._state, self._received = state, self._clock.monotonic()
                    if is_new:
                        self._on_change()
            except (UnavailableError, ConflictError) as error:
                self._lose(error)
            except Exception as error:  # else its last state would be believed for ever
                logger.exception("sync server not understood endpoint=%s", self.endpoint)
                self._lose(error)
            failures += 1
            await asyncio.sleep(_RETRIES.drawn(failures).total_seconds())

    def _lose(self, error: Exception) -> None:
        self.is_opening = False
        if self._state is not None:
            logger.warning("sync server lost endpoint=%s error=%s", self.endpoint, error)
            self._state = None
            self._on_change()


def aged(state: SyncState, by: timedelta) -> SyncState:
    """The state a while later: those without a Session have been silent for longer.

    A connected peer's silence is left as it was: the server tells when it grows too long.
    """
    peers = {
        name: peer if peer.connected else replace(peer, silent_for=peer.silent_for + by)
        for name, peer in state.peers.items()
    }
    return replace(state, peers=peers)
