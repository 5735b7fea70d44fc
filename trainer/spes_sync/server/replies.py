"""Our errors as gRPC statuses: the one place. The reason's name goes along as metadata."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

import grpc
from spes_proto.v1 import sync_pb2

from spes_sync import metadata
from spes_sync.errors import (
    DiskFullError,
    ProtocolError,
    ServerUnavailableError,
    StaleSessionError,
    SyncError,
    TokenError,
)

T = TypeVar("T")

# A stream on which nothing moves for this long is broken off. There is no limit on the whole.
PROGRESS_TIMEOUT = timedelta(seconds=30)
# What a caller is told to wait when the server cannot answer now.
RETRY_AFTER = timedelta(seconds=1)

# The caller's picture is out of date, as opposed to a request that no state of ours would accept.
_OUTDATED = frozenset({sync_pb2.OLD_EPOCH, sync_pb2.WRONG_JOB, sync_pb2.OLD_BASE})


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: SyncError) -> NoReturn:
    """End a call with the status that this error is."""
    code = grpc.StatusCode.INTERNAL
    extra: tuple[tuple[str, str], ...] = ()
    match error:
        case ProtocolError():
            outdated = error.reason in _OUTDATED
            code = (
                grpc.StatusCode.FAILED_PRECONDITION
                if outdated
                else grpc.StatusCode.INVALID_ARGUMENT
            )
            extra = ((metadata.REASON, error.reason_name),)
            if isinstance(error, TokenError) and error.retry_after is not None:
                code = grpc.StatusCode.RESOURCE_EXHAUSTED
                extra += _retry_after(error.retry_after)
        case StaleSessionError():
            code = grpc.StatusCode.UNAUTHENTICATED
        case ServerUnavailableError():
            code = grpc.StatusCode.UNAVAILABLE
            extra = _retry_after(error.retry_after or RETRY_AFTER)
        case DiskFullError():
            code = grpc.StatusCode.UNAVAILABLE
            extra = ((metadata.REASON, "DISK_FULL"),)
    await context.abort(code, str(error), extra)


def _retry_after(wait: timedelta) -> tuple[tuple[str, str], ...]:
    return ((metadata.RETRY_AFTER, f"{wait.total_seconds():g}"),)


async def next_of(stream: AsyncIterator[T], timeout: timedelta = PROGRESS_TIMEOUT) -> T | None:
    """The stream's next message; None at its end.

    Raises:
        TimeoutError: none came in time.
    """
    try:
        async with asyncio.timeout(timeout.total_seconds()):  # unlike wait_for, without a task
            return await anext(stream)
    except StopAsyncIteration:
        return None
