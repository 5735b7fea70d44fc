"""Payloads as chunks: cut on the way out, checked on the way in.

A payload is a header (not handled here), chunks of at most 1 MiB with a CRC each, and an End with
a SHA-256 over all bytes, by way of one for each tensor. Both sides hold one chunk in memory, never
the payload.
"""

from __future__ import annotations

import errno
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from spes_proto.v1 import sync_pb2

from spes_sync.errors import DiskFullError, ProtocolError

# Fits gRPC's default 4 MiB message limit; larger ones cost throughput and memory.
MAX_CHUNK_BYTES = 1 << 20

# The message that a chunk travels in.
Part = TypeVar("Part", sync_pb2.PushPart, sync_pb2.PullPart)


class Digest(Protocol):
    """What a payload is hashed with."""

    def update(self, data: bytes, /) -> None:
        """Take more bytes in."""

    def hexdigest(self) -> str:
        """The hash of what was taken in."""


def iter_chunks(
    part: type[Part],
    buffers: Iterable[bytes | memoryview],
    *,
    offset: int = 0,
) -> Iterator[Part]:
    """Cut a payload given in pieces of any size into full chunks.

    Args:
        part: The message to put each into.
        buffers: The payload from its first byte on; small pieces are put together.
        offset: Bytes before it are not sent, to resume a broken stream.
    """
    pending = bytearray()
    position = 0  # of pending[0] in the payload
    for buffer in buffers:
        piece = memoryview(buffer).cast("B")
        skipped = min(len(piece), max(0, offset - position)) if not pending else 0
        position += skipped
        piece = piece[skipped:]
        while piece:
            if not pending and len(piece) >= MAX_CHUNK_BYTES:  # no need to put anything together
                yield _chunk(part, position, bytes(piece[:MAX_CHUNK_BYTES]))
                position += MAX_CHUNK_BYTES
                piece = piece[MAX_CHUNK_BYTES:]
                continue
            taken = piece[: MAX_CHUNK_BYTES - len(pending)]
            pending += taken
            piece = piece[len(taken) :]
            if len(pending) == MAX_CHUNK_BYTES:
                yield _chunk(part, position, bytes(pending))
                position += MAX_CHUNK_BYTES
                pending.clear()
    if pending:
        yield _chunk(part, position, bytes(pending))


def iter_file_chunks(part: type[Part], path: Path, *, offset: int = 0) -> Iterator[Part]:
    """Cut a payload that lies in a file into chunks, from `offset` on."""
    with path.open("rb") as file:
        file.seek(offset)
        while data := file.read(MAX_CHUNK_BYTES):
            yield _chunk(part, offset, data)
            offset += len(data)


class PayloadWriter:
    """Writes a payload's chunks to a file, refusing the first that is not the expected next one.

    `received` is the offset from which a broken stream may go on into the same writer.
    """

    def __init__(
        self, file: BinaryIO, total_bytes: int, digest: Digest, *, path: Path | None = None
    ) -> None:
        """Expect exactly `total_bytes`; `path` is named when the disk is full."""
        self._file = file
        self._path = path or Path(str(getattr(file, "name", "payload")))
        self._digest = digest
        self.total_bytes = total_bytes
        self.received = 0

    def write(self, chunk: sync_pb2.Chunk) -> bytes:
        """Check and append one chunk; returns its data, of which every look at it makes a copy.

        Raises:
            ProtocolError: TRUNCATED (a gap), TOO_LARGE, or BAD_CHECKSUM.
            DiskFullError: no space left.
        """
        data = chunk.data
        if chunk.offset != self.received:
            raise ProtocolError(
                sync_pb2.TRUNCATED, f"chunk at offset {chunk.offset} (expected {self.received})"
            )
        if not data or len(data) > MAX_CHUNK_BYTES:
            raise ProtocolError(
                sync_pb2.TOO_LARGE, f"chunk of {len(data)} bytes (expected 1 to {MAX_CHUNK_BYTES})"
            )
        if self.received + len(data) > self.total_bytes:
            raise ProtocolError(
                sync_pb2.TOO_LARGE, f"more bytes than announced (expected {self.total_bytes:,})"
            )
        if zlib.crc32(data) != chunk.crc32:
            raise ProtocolError(sync_pb2.BAD_CHECKSUM, f"CRC of the chunk at offset {chunk.offset}")
        self._append(data)
        self._digest.update(data)
        self.received += len(data)
        return data

    def finish(self, end: sync_pb2.End) -> str:
        """Check length and hash of the whole; returns the SHA-256 as hex.

        Raises:
            ProtocolError: TRUNCATED or BAD_CHECKSUM.
        """
        if self.received != self.total_bytes:
            raise ProtocolError(
                sync_pb2.TRUNCATED,
                f"payload ended early (got {self.received:,} bytes, expected {self.total_bytes:,})",
            )
        if self._digest.hexdigest() != end.sha256:
            raise ProtocolError(sync_pb2.BAD_CHECKSUM, "SHA-256 of the payload differs")
        return end.sha256

    def _append(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFullError(self._path, self.total_bytes) from error
            raise


def _chunk(part: type[Part], offset: int, data: bytes) -> Part:
    """A message with a chunk in it, filled in place: given a whole Chunk, it would copy that."""
    message = part()
    chunk = message.chunk
    chunk.offset, chunk.data, chunk.crc32 = offset, data, zlib.crc32(data)
    return message
