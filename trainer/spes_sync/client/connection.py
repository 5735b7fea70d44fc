"""The one place that speaks gRPC for a peer: channel, calls, statuses turned into our errors.

Calls block; a peer is a training loop, one Session thread and, inside gRPC, the senders. Every call
has a deadline or is broken off when it makes no progress.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Protocol, TypeVar, cast

import grpc
from spes_proto.v1 import sync_pb2, sync_pb2_grpc

from spes_sync import metadata
from spes_sync.client.certificate import check_server_certificate, read_ca
from spes_sync.client.options import CALL_TIMEOUT, PUSH_PROGRESS_TIMEOUT
from spes_sync.errors import (
    ProtocolError,
    ServerUnavailableError,
    StaleSessionError,
    SyncError,
    TokenError,
)

# NAT and load balancers drop idle connections after a minute or more; pings keep them open.
_KEEPALIVE_MS = 30_000
_CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.enable_retries", 0),
)

_REASONS = {
    name: cast("sync_pb2.Reason", value)  # the stubs type the wrapper's items as plain int
    for name, value in sync_pb2.Reason.items()
}
_TOKEN_REASONS = frozenset({sync_pb2.BAD_TOKEN, sync_pb2.TOKEN_USED, sync_pb2.TOKEN_EXPIRED})
_FINAL_CODES = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
_AUTH_CODES = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})


# Whether a call in progress is not worth finishing any more.
Unwanted = Callable[[], bool]


def never() -> bool:
    """A call is wanted whatever happens meanwhile."""
    return False


T_co = TypeVar("T_co", covariant=True)


class Cancellable(Protocol):
    """A call that can be broken off."""

    def cancel(self) -> object:
        """Break it off."""


class Stream(Cancellable, Protocol[T_co]):
    """Messages of the server as they arrive."""

    def __iter__(self) -> Iterator[T_co]:
        """Block for each message; raises RpcError where the stream breaks."""


class Connection:
    """A TLS channel to the sync server and, after Join, the session key on every call."""

    def __init__(self, address: str, ca_file: Path) -> None:
        """Open the channel lazily: nothing is sent before the first call.

        Raises:
            CertificateError: the CA file cannot be used.
        """
        self._address = address
        self._ca_file = ca_file
        credentials = grpc.ssl_channel_credentials(root_certificates=read_ca(ca_file))
        self._channel = grpc.secure_channel(address, credentials, options=_CHANNEL_OPTIONS)
        self._stub = sync_pb2_grpc.SyncStub(self._channel)
        self._metadata: tuple[tuple[str, str], ...] = ()

    def close(self) -> None:
        """Break off all calls."""
        self._channel.close()

    def join(self, request: sync_pb2.JoinRequest) -> sync_pb2.JoinReply:
        """Announce this process.

        Raises:
            CertificateError: the server's certificate does not fit the CA or the address.
            TokenError: the token is not accepted.
            ServerUnavailableError: try again.
        """
        try:
            reply = self._stub.Join(request, timeout=CALL_TIMEOUT.total_seconds())
        except grpc.RpcError as error:
            translated = translate(error)
            if isinstance(translated, ServerUnavailableError):
                check_server_certificate(self._address, self._ca_file)
            raise translated from error
        self._metadata = ((metadata.SESSION, reply.session_key),)
        return reply

    def session(self, events: Iterator[sync_pb2.PeerEvent]) -> Stream[sync_pb2.ServerEvent]:
        """Open the event stream; `events` is consumed by a thread of gRPC's."""
        return self._stub.Session(events, metadata=self._metadata)

    def pull(self, request: sync_pb2.PullRequest) -> Stream[sync_pb2.PullPart]:
        """Start to receive a frame."""
        return self._stub.Pull(request, metadata=self._metadata)

    def push(
        self,
        parts: Iterator[sync_pb2.PushPart],
        *,
        deadline: timedelta | None = None,
        unwanted: Unwanted = never,
    ) -> sync_pb2.PushReply:
        """Send a push and wait for its answer; `unwanted` breaks it off.

        Raises:
            ServerUnavailableError: the stream broke, or nothing moved; send it again.
        """
        progress = Progress(PUSH_PROGRESS_TIMEOUT, unwanted=unwanted)
        call = self._stub.Push.future(
            progress.over(parts),
            metadata=self._metadata,
            timeout=None if deadline is None else deadline.total_seconds(),
        )
        try:
            with progress.watching(call):
                return call.result()
        except grpc.FutureCancelledError as error:
            raise ServerUnavailableError("the push made no progress, or came too late") from error
        except grpc.RpcError as error:
            raise translate(error) from error


class Progress:
    """Breaks a call off when nothing has moved for too long, or when it is no longer wanted."""

    def __init__(self, limit: timedelta, *, unwanted: Unwanted = never) -> None:
        """`unwanted` is asked now and then, from another thread."""
        self._limit = limit.total_seconds()
        self._unwanted = unwanted
        self._last = time.monotonic()

    def moved(self) -> None:
        """Something arrived or was sent."""
        self._last = time.monotonic()

    def over(self, parts: Iterator[sync_pb2.PushPart]) -> Iterator[sync_pb2.PushPart]:
        """The same parts; each that gRPC asks for counts as progress."""
        for part in parts:
            self.moved()
            yield part
        self.moved()

    @contextmanager
    def watching(self, call: Cancellable) -> Iterator[None]:
        """Watch the call until the block is left."""
        done = threading.Event()
        self.moved()

        def watch() -> None:
            while not done.wait(min(0.1, self._limit / 4)):
                if self._unwanted() or time.monotonic() - self._last > self._limit:
                    call.cancel()
                    return

        watcher = threading.Thread(target=watch, name="spes-progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def translate(error: grpc.RpcError) -> SyncError:
    """Our error for a status: its type alone says whether to try again."""
    code, detail = error.code(), error.details() or "no details"
    trailing = {item.key: str(item.value) for item in error.trailing_metadata() or ()}
    reason = _REASONS.get(trailing.get(metadata.REASON, ""), sync_pb2.REASON_UNSPECIFIED)
    retry_after = _seconds(trailing.get(metadata.RETRY_AFTER))
    if reason in _TOKEN_REASONS:
        return TokenError(reason, detail, retry_after=retry_after)
    if code in _AUTH_CODES:
        return StaleSessionError(detail)
    if code in _FINAL_CODES:
        return ProtocolError(reason, detail)
    return ServerUnavailableError(
        f"sync server unavailable ({code.name}: {detail})",
        retry_after=retry_after,
    )


def _seconds(text: str | None) -> timedelta | None:
    return timedelta(seconds=float(text)) if text else None
