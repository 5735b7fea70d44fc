"""Huffman coding of a payload's chunks on the wire, where it pays.

Each chunk of a payload is coded by itself, by zlib's coder without its search for repetitions:
canonical Huffman codes of at most 15 bits, made anew for every 32 Ki bytes or so. So a stream can
be resumed at any chunk, sizes and hashes of a payload do not depend on it, and what lies on disk is
never coded. A chunk that would not become a twentieth smaller goes as it is; then the next ones are
not tried.
"""

from __future__ import annotations

import zlib

from spes_proto.v1 import sync_pb2

from spes_sync.errors import ProtocolError

# A coded chunk has at most this share of the bytes, else it is not worth the receiver's work.
_WORTH = 0.95
# After a chunk that was not worth it, so many go as they are: payloads change their kind seldom.
_SKIPPED = 15
_RAW_DEFLATE = -15
_MEMORY_LEVEL = 9


class Huffman:
    """The coder of one payload on its way out."""

    def __init__(self) -> None:
        """Nothing coded yet."""
        self._skip = 0
        self.saved_bytes = 0
        """What was sent less."""

    def coded(self, data: bytes | memoryview) -> bytes | None:
        """The chunk's data, coded; None: it goes as it is."""
        if self._skip:
            self._skip -= 1
            return None
        coder = zlib.compressobj(1, zlib.DEFLATED, _RAW_DEFLATE, _MEMORY_LEVEL, zlib.Z_HUFFMAN_ONLY)
        coded = coder.compress(data) + coder.flush()
        if len(coded) <= _WORTH * len(data):
            self.saved_bytes += len(data) - len(coded)
            return coded
        self._skip = _SKIPPED
        return None


def expanded(data: bytes, num_bytes: int) -> bytes:
    """Decode a chunk's data; never makes more of it than a byte too many.

    Raises:
        ProtocolError: BAD_CHECKSUM, it is no such stream, or not of just that many bytes.
    """
    decoder = zlib.decompressobj(_RAW_DEFLATE)
    try:
        plain = decoder.decompress(data, num_bytes + 1)
    except zlib.error as error:
        raise _wrong(num_bytes, str(error)) from error
    if len(plain) != num_bytes or not decoder.eof or decoder.unused_data:
        raise _wrong(num_bytes, "it ends elsewhere")
    return plain


def _wrong(num_bytes: int, what: str) -> ProtocolError:
    return ProtocolError(
        sync_pb2.BAD_CHECKSUM, f"a coded chunk does not expand to {num_bytes:,} bytes: {what}"
    )
