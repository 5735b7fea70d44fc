"""Join: spend a one-time token, keep the next one, learn the job's terms."""

from __future__ import annotations

import logging
import threading
import time

from spes_proto.v1 import sync_pb2

from spes_sync.client.backoff import Backoff
from spes_sync.client.connection import Connection
from spes_sync.client.directory import claim
from spes_sync.client.options import PeerOptions
from spes_sync.client.tokens import TokenFiles
from spes_sync.errors import ServerUnavailableError, SyncError, TokenError
from spes_sync.metadata import PROTOCOL_VERSION

logger = logging.getLogger(__name__)


def join(
    connection: Connection, options: PeerOptions, stop: threading.Event
) -> sync_pb2.JoinReply | None:
    """Join the job, however long the server takes to come up; None if `stop` is set first.

    Raises:
        TokenError: no token was accepted for `options.token_patience`.
        CertificateError: TLS failed.
    """
    tokens = TokenFiles(options.directory, options.token_file)
    backoff = Backoff()
    refused_since: float | None = None
    while not stop.is_set():
        try:
            reply = _try_each(connection, options, tokens)
        except ServerUnavailableError as error:
            wait, refused_since = backoff.next(error.retry_after), None
            _waiting(wait.total_seconds(), error)
        except TokenError as error:
            refused_since = refused_since or time.monotonic()
            if time.monotonic() - refused_since > options.token_patience.total_seconds():
                raise
            wait = backoff.next(error.retry_after)
            _waiting(wait.total_seconds(), error)
        else:
            claim(options.directory, reply.job_uid)
            tokens.keep(reply.next_token)
            return reply
        stop.wait(wait.total_seconds())
    return None


def _try_each(
    connection: Connection, options: PeerOptions, tokens: TokenFiles
) -> sync_pb2.JoinReply:
    refusal = TokenError(sync_pb2.BAD_TOKEN, f"no token in {options.token_file}")
    for token in tokens.candidates():
        request = sync_pb2.JoinRequest(
            peer=options.peer,
            token=token,
            protocol=PROTOCOL_VERSION,
            processes=options.processes,
        )
        try:
            return connection.join(request)
        except TokenError as error:
            refusal = error
    raise refusal


def _waiting(seconds: float, error: SyncError) -> None:
    logger.info("join failed, trying again wait_s=%.1f reason=%s", seconds, error)
