"""Payloads as chunks: cut on the way out, checked on the way in.

A payload is a header (not handled here), chunks of at most 1 MiB with a CRC each, and an End with
a SHA-256 over all bytes, by way of one for each tensor. A chunk's data may be Huffman-coded:
offsets and hashes are those of the payload. Both sides hold one chunk in memory, never the payload.
"""

from __future__ import annotations

import errno
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from spes_proto.v1 import sync_pb2

from spes_sync.entropy import Huffman, expanded
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
    coder: Huffman | None = None,
) -> Iterator[Part]:
    """Cut a payload given in pieces of any size into full chunks.

    Args:
        part: The message to put each into.
        buffers: The payload from its first byte on; small pieces are put together.
        offset: Bytes before it are not sent, to resume a broken stream.
        coder: Makes chunks smaller where it can.
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
                yield _chunk(part, position, bytes(piece[:MAX_CHUNK_BYTES]), coder)
                position += MAX_CHUNK_BYTES
                piece = piece[MAX_CHUNK_BYTES:]
                continue
            taken = piece[: MAX_CHUNK_BYTES - len(pending)]
            pending += taken
            piece = piece[len(taken) :]
            if len(pending) == MAX_CHUNK_BYTES:
                yield _chunk(part, position, bytes(pending), coder)
                position += MAX_CHUNK_BYTES
                pending.clear()
    if pending:
        yield _chunk(part, position, bytes(pending), coder)


def iter_file_chunks(
    part: type[Part], path: Path, *, offset: int = 0, coder: Huffman | None = None
) -> Iterator[Part]:
    """Cut a payload that lies in a file into chunks, from `offset` on."""
    with path.open("rb") as file:
        file.seek(offset)
        chunks = iter(partial(file.read, MAX_CHUNK_BYTES), b"")
        if coder is None:
            for data in chunks:
                yield _message(part, offset, data, None)
                offset += len(data)
            return
        for data, coded in coder.coded_ahead(chunks):
            yield _message(part, offset, data, coded)
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
        self.received_coded = 0
        """What came over the wire of it."""

    def write(self, chunk: sync_pb2.Chunk) -> bytes:
        """Check and append one chunk; returns its part of the payload.

        Raises:
            ProtocolError: TRUNCATED (a gap), TOO_LARGE, or BAD_CHECKSUM.
            DiskFullError: no space left.
        """
        data, num_bytes = chunk.data, chunk.expands_to or len(chunk.data)
        if chunk.offset != self.received:
            raise ProtocolError(
                sync_pb2.TRUNCATED, f"chunk at offset {chunk.offset} (expected {self.received})"
            )
        if not data or max(len(data), num_bytes) > MAX_CHUNK_BYTES:
            raise ProtocolError(
                sync_pb2.TOO_LARGE,
                f"chunk of {max(len(data), num_bytes)} bytes (expected 1 to {MAX_CHUNK_BYTES})",
            )
        if self.received + num_bytes > self.total_bytes:
            raise ProtocolError(
                sync_pb2.TOO_LARGE, f"more bytes than announced (expected {self.total_bytes:,})"
            )
        if zlib.crc32(data) != chunk.crc32:
            raise ProtocolError(sync_pb2.BAD_CHECKSUM, f"CRC of the chunk at offset {chunk.offset}")
        self.received_coded += len(data)
        if chunk.expands_to:
            data = expanded(data, num_bytes)
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


def _chunk(part: type[Part], offset: int, data: bytes, coder: Huffman | None) -> Part:
    return _message(part, offset, data, coder.coded(data) if coder is not None else None)


def _message(part: type[Part], offset: int, data: bytes, coded: bytes | None) -> Part:
    """A message with a chunk in it, filled in place: given a whole Chunk, it would copy that."""
    message = part()
    chunk = message.chunk
    if coded is not None:
        chunk.expands_to, data = len(data), coded
    chunk.offset, chunk.data, chunk.crc32 = offset, data, zlib.crc32(data)
    return message
