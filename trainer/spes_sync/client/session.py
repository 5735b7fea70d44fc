"""The Session: heartbeats up, server events down, over breaks and server restarts.

One thread of its own reads events into a bounded queue; gRPC's sender takes heartbeats and reports
from here. A broken stream is opened again with the same session key until the peer closes it.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

import grpc
from spes_proto.v1 import sync_pb2

from spes_sync.client.backoff import Backoff
from spes_sync.client.connection import Connection, translate
from spes_sync.errors import ServerUnavailableError, SyncError

logger = logging.getLogger(__name__)

# A server says a handful of things a round; a peer that is this far behind is not listening.
_MAX_QUEUED = 4096
_GOODBYE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Connected:
    """A Session begins, or begins again; what the server says next is its whole state."""

    version: int  # that the peer said it holds


@dataclass(frozen=True, slots=True)
class Lost:
    """The Session is over for good; `error` says why."""

    error: SyncError


# None ends the stream.
_Outgoing = queue.Queue[sync_pb2.PeerEvent | None]

Incoming = sync_pb2.ServerEvent | Connected | Lost


class Session:
    """The event stream of one peer process."""

    def __init__(
        self,
        connection: Connection,
        heartbeat_every: timedelta,
        first: sync_pb2.Heartbeat,
        while_live: Callable[[], None],
    ) -> None:
        """Prepare; `first` says which version the peer holds. `start` opens the stream."""
        self._heartbeat = first  # replaced by `beat` as training goes on
        self._said = first.version  # in the first heartbeat of the present stream
        self._connection = connection
        self._every = heartbeat_every.total_seconds()
        self._while_live = while_live
        self._incoming: queue.Queue[Incoming] = queue.Queue(_MAX_QUEUED)
        self._outgoing = _Outgoing(_MAX_QUEUED)
        self._caught_up: sync_pb2.CaughtUp | None = None
        self._evaluation: sync_pb2.Evaluation | None = None
        self._stopped = threading.Event()
        self._closed = threading.Event()
        self._live = threading.Event()
        self._goodbye = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spes-session", daemon=True)

    def stopped(self) -> bool:
        """The server has said Stop, though it may not be heard yet: no call is worth finishing."""
        return self._stopped.is_set()

    def start(self) -> None:
        """Open the stream."""
        self._thread.start()

    def next_event(self, timeout: timedelta) -> Incoming | None:
        """The next thing the server said; None if it says nothing in time."""
        try:
            return self._incoming.get(timeout=timeout.total_seconds())
        except queue.Empty:
            return None

    def events_so_far(self) -> Iterator[Incoming]:
        """Everything that has arrived, without waiting."""
        while True:
            try:
                yield self._incoming.get_nowait()
            except queue.Empty:
                return

    def beat(self, heartbeat: sync_pb2.Heartbeat) -> None:
        """Send this heartbeat from now on; at once if it says another version.

        The server opens no round before it knows that its peers hold the last version.
        """
        moved = heartbeat.version != self._heartbeat.version
        self._heartbeat = heartbeat
        if moved:
            self._outgoing.put(sync_pb2.PeerEvent(heartbeat=heartbeat))

    def caught_up(self, message: sync_pb2.CaughtUp) -> None:
        """Say, now and at the start of each later stream, that this process has caught up."""
        self._caught_up = message
        self._outgoing.put(sync_pb2.PeerEvent(caught_up=message))

    def evaluated(self, message: sync_pb2.Evaluation) -> None:
        """Report a held-out loss; the last one again at the start of each later stream."""
        self._evaluation = message
        self._outgoing.put(sync_pb2.PeerEvent(evaluation=message))

    def leave(self, reason: str) -> None:
        """Say goodbye, and wait shortly until it is on its way."""
        self._outgoing.put(sync_pb2.PeerEvent(leaving=sync_pb2.Leaving(reason=reason)))
        self._goodbye.wait(_GOODBYE_SECONDS if self._live.is_set() else 0)

    def close(self) -> None:
        """End the stream and its thread; the connection must be closed too."""
        self._closed.set()
        self._outgoing.put(None)
        self._thread.join(_GOODBYE_SECONDS)

    def _run(self) -> None:
        backoff = Backoff()
        while not self._closed.is_set():
            error = self._stream(backoff)
            self._live.clear()
            if self._closed.is_set():
                return
            if not isinstance(error, ServerUnavailableError):
                self._incoming.put(Lost(error))
                return
            wait = backoff.next(error.retry_after)
            logger.info(
                "session broken, reconnecting wait_s=%.1f reason=%s", wait.total_seconds(), error
            )
            self._closed.wait(wait.total_seconds())

    def _stream(self, backoff: Backoff) -> SyncError:
        # Each stream has a queue of its own: the sender of a broken one may still wait on the last.
        self._outgoing = outgoing = _Outgoing(_MAX_QUEUED)
        call = self._connection.session(self._events(outgoing))
        try:
            for event in call:
                if not self._live.is_set():
                    self._live.set()
                    backoff.reset()
                    self._while_live()
                    self._incoming.put(Connected(self._said))
                if event.HasField("stop") and not event.stop.evaluate_seconds:
                    self._stopped.set()
                self._incoming.put(event)
        except grpc.RpcError as error:
            return translate(error)
        finally:
            outgoing.put(None)
        return ServerUnavailableError("the server ended the session")

    def _events(self, outgoing: _Outgoing) -> Iterator[sync_pb2.PeerEvent]:
        """What gRPC sends on one stream: heartbeats, and reports as they come."""
        first = self._heartbeat
        self._said = first.version
        yield sync_pb2.PeerEvent(heartbeat=first)
        if self._caught_up is not None:
            yield sync_pb2.PeerEvent(caught_up=self._caught_up)
        if self._evaluation is not None:
            yield sync_pb2.PeerEvent(evaluation=self._evaluation)
        due = time.monotonic() + self._every
        while not self._closed.is_set():
            try:
                event = outgoing.get(timeout=max(0.0, due - time.monotonic()))
            except queue.Empty:
                event = sync_pb2.PeerEvent(heartbeat=self._heartbeat)
                due = time.monotonic() + self._every
                if self._live.is_set():
                    self._while_live()
            if event is None:
                return
            yield event
            if event.HasField("leaving"):
                self._goodbye.set()
