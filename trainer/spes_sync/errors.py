"""Every error the sync plane raises on purpose, server and peer alike.

    SyncError
    ├── ProtocolError           the other side sent what cannot be accepted; carries a Reason
    │   ├── TokenError          the one-time token or the session key is not accepted
    │   └── PushRefusedError    the server refused a push for good
    ├── ServerUnavailableError  try again later; carries retry_after
    ├── StaleSessionError       this process must end, a new one may join
    ├── CertificateError        the server's certificate does not fit the CA or the address
    ├── ExportError             a model that cannot be written as or read from a Hugging Face folder
    ├── DivergedError           a loss or a tensor is not finite, or bytes differ from the server's
    └── VolumeError             a directory that cannot be used
        └── DiskFullError       no space left; names path and bytes

Whether to retry is decided by type: only `ServerUnavailableError` is worth another attempt with
the same input.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from spes_proto.v1 import sync_pb2


class SyncError(Exception):
    """Base of every error of the sync plane."""


class ProtocolError(SyncError):
    """A message that cannot be accepted; `reason` is what the other side is told."""

    def __init__(self, reason: sync_pb2.Reason, detail: str) -> None:
        """Say why (`reason`, for the other side) and what exactly (`detail`, for people)."""
        super().__init__(detail)
        self.reason = reason

    @property
    def reason_name(self) -> str:
        """The reason as the wire spells it, for example "BAD_CHECKSUM"."""
        return sync_pb2.Reason.Name(self.reason)


class TokenError(ProtocolError):
    """A token or session key that is unknown, used, expired or another peer's."""

    def __init__(
        self, reason: sync_pb2.Reason, detail: str, *, retry_after: timedelta | None = None
    ) -> None:
        """As for any; `retry_after` if too many failed before, for another token."""
        super().__init__(reason, detail)
        self.retry_after = retry_after


class PushRefusedError(ProtocolError):
    """A push that no retransmission can save: its progress is dropped."""


class ServerUnavailableError(SyncError):
    """The server cannot be reached or is not ready; the same call may work later."""

    def __init__(self, detail: str, *, retry_after: timedelta | None = None) -> None:
        """Say what failed; without `retry_after` the caller's own backoff decides."""
        super().__init__(detail)
        self.retry_after = retry_after


class StaleSessionError(SyncError):
    """A newer process of this peer has joined, or the job began anew: only a new process can."""


class CertificateError(SyncError):
    """TLS failed; the message names the certificate's names and what to do."""


class ExportError(SyncError):
    """A model does not fit the layout, or a folder is not what it should be."""


class DivergedError(SyncError):
    """A value is not finite, or bytes that must be equal on both sides are not."""


class VolumeError(SyncError):
    """A directory is held by another process, belongs to another job, or is corrupt."""


class DiskFullError(VolumeError):
    """No space left on the device."""

    def __init__(self, path: Path, num_bytes: int) -> None:
        """Name the file that could not be written and the bytes it needs."""
        super().__init__(
            f"no space left for {path} (needs {num_bytes:,} bytes); free space on that volume"
        )
        self.path = path
        self.num_bytes = num_bytes
