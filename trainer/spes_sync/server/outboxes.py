"""What the server says to each connected peer: one bounded queue per Session stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from spes_proto.v1 import sync_pb2

from spes_sync.plan import PeerId

logger = logging.getLogger(__name__)

# A peer that has not read this many messages is not reading; its stream ends and it resumes.
MAX_UNREAD = 256


class Outbox:
    """The messages of one stream, in order; None from `get` ends the stream."""

    def __init__(self, peer: PeerId) -> None:
        """An empty queue for this peer."""
        self.peer = peer
        self._queue: asyncio.Queue[sync_pb2.ServerEvent | None] = asyncio.Queue(MAX_UNREAD + 1)
        self._closed = False

    def put(self, event: sync_pb2.ServerEvent) -> None:
        """Queue a message; a full queue ends the stream."""
        if self._closed:
            return
        if self._queue.qsize() >= MAX_UNREAD:
            logger.warning("session ended, peer does not read peer=%s", self.peer)
            self.close()
        else:
            self._queue.put_nowait(event)

    def close(self) -> None:
        """End the stream after what is queued."""
        if not self._closed:
            self._closed = True
            self._queue.put_nowait(None)

    async def get(self) -> sync_pb2.ServerEvent | None:
        """The next message; None at the end."""
        return await self._queue.get()


class Outboxes:
    """The one current stream of each peer."""

    def __init__(self) -> None:
        """Nobody is connected."""
        self._current: dict[PeerId, Outbox] = {}

    @property
    def peers(self) -> frozenset[PeerId]:
        """Who is connected."""
        return frozenset(self._current)

    def open(self, peer: PeerId, greeting: Iterable[sync_pb2.ServerEvent]) -> Outbox:
        """Begin a peer's stream; an older one of the same peer ends."""
        self.end(peer)
        outbox = Outbox(peer)
        for event in greeting:
            outbox.put(event)
        self._current[peer] = outbox
        return outbox

    def end(self, peer: PeerId) -> None:
        """End a peer's stream, if it has one."""
        if (outbox := self._current.pop(peer, None)) is not None:
            outbox.close()

    def closed(self, outbox: Outbox) -> bool:
        """Note that a stream is over; True if it was the peer's current one."""
        if self._current.get(outbox.peer) is not outbox:
            return False
        del self._current[outbox.peer]
        return True

    def send(self, event: sync_pb2.ServerEvent, peers: Iterable[PeerId] | None = None) -> None:
        """Tell these peers, or everyone who is connected."""
        for peer in self._current.keys() if peers is None else peers:
            if (outbox := self._current.get(peer)) is not None:
                outbox.put(event)
