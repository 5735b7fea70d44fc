"""Huffman coding of a payload's chunks on the wire, where it pays.

Each chunk of a payload is coded by itself, by zlib's coder without its search for repetitions:
canonical Huffman codes of at most 15 bits, made anew for every 32 Ki bytes or so. So a stream can
be resumed at any chunk, sizes and hashes of a payload do not depend on it, and what lies on disk is
never coded. A chunk that would not become a twentieth smaller goes as it is; then the next ones are
not tried.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from spes_proto.v1 import sync_pb2

from spes_sync.errors import ProtocolError

# A coded chunk has at most this share of the bytes, else it is not worth the receiver's work.
_WORTH = 0.95
# After a chunk that was not worth it, so many go as they are: payloads change their kind seldom.
_SKIPPED = 15
# That code ahead of a sender: one alone is slower than a link of 1 Gbit/s.
_THREADS = 2
_RAW_DEFLATE = -15
_MEMORY_LEVEL = 9


class Huffman:
    """The coder of one payload on its way out."""

    def __init__(self) -> None:
        """Nothing coded yet."""
        self._skip = 0
        self.saved_bytes = 0
        """What was sent less."""

    def coded(self, data: bytes) -> bytes | None:
        """The chunk's data, coded; None: it goes as it is."""
        return self._worth(data, _huffman(data)) if self._is_tried() else None

    def coded_ahead(self, chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield each chunk's data with its coded form, while the next ones are coded in threads."""
        waiting: deque[tuple[bytes, Future[bytes] | None]] = deque()
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="spes-huffman") as threads:
            for data in chunks:
                tried = self._is_tried()
                waiting.append((data, threads.submit(_huffman, data) if tried else None))
                if len(waiting) > _THREADS:
                    yield self._settled(*waiting.popleft())
            while waiting:
                yield self._settled(*waiting.popleft())

    def _settled(self, data: bytes, coded: Future[bytes] | None) -> tuple[bytes, bytes | None]:
        return data, None if coded is None else self._worth(data, coded.result())

    def _is_tried(self) -> bool:
        if self._skip:
            self._skip -= 1
            return False
        return True

    def _worth(self, data: bytes, coded: bytes) -> bytes | None:
        if len(coded) > _WORTH * len(data):
            self._skip = _SKIPPED
            return None
        self.saved_bytes += len(data) - len(coded)
        return coded


def _huffman(data: bytes) -> bytes:
    coder = zlib.compressobj(1, zlib.DEFLATED, _RAW_DEFLATE, _MEMORY_LEVEL, zlib.Z_HUFFMAN_ONLY)
    return coder.compress(data) + coder.flush()


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
