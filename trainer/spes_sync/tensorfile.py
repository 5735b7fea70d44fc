"""Tensors in safetensors files, written in one pass and read by the piece.

The data region holds the tensors by name without gaps: for a whole model it is, byte for byte, the
payload that a full pull sends. Files are read with pread into small buffers, never mapped: mapped
pages would count as the server's memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Self

import numpy as np

from spes_sync.codec import Array, encode
from spes_sync.disk import Disk, reports_full
from spes_sync.errors import VolumeError
from spes_sync.manifest import TensorSpec

# Elements handled at once: 1 MiB stays in a core's cache.
PIECE_ELEMENTS = 1 << 18

_ITEM_BYTES = 4
# Tensors begin on a multiple of this, as the format recommends.
_ALIGNMENT = 8
_LENGTH = struct.Struct("<Q")


def pieces(tensor: TensorSpec) -> Iterator[tuple[int, int]]:
    """Start and number of elements of each piece of a tensor."""
    for start in range(0, tensor.num_elements, PIECE_ELEMENTS):
        yield start, min(PIECE_ELEMENTS, tensor.num_elements - start)


def _offsets(tensors: Iterable[TensorSpec], start: int) -> dict[str, int]:
    offsets: dict[str, int] = {}
    for tensor in tensors:
        offsets[tensor.name] = start
        start += tensor.num_bytes
    return offsets


class TensorWriter:
    """Writes a safetensors file front to back; `close` makes it durable."""

    def __init__(
        self, path: Path, tensors: tuple[TensorSpec, ...], disk: Disk, *, source: str = ""
    ) -> None:
        """Write the header: the tensors, their order and who they come from are known by now."""
        self.path = path
        self._disk = disk
        self._file_sha256 = hashlib.sha256()
        self._num_bytes = sum(tensor.num_bytes for tensor in tensors)
        self._file = path.open("wb")
        self.write(_header(tensors, source))

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes of the next tensor."""
        with reports_full(self.path, self._num_bytes):
            self._file.write(data)
        self._file_sha256.update(data)

    def close(self, point: str) -> str:
        """Flush, fsync, close; returns the SHA-256 of the file."""
        with reports_full(self.path, self._num_bytes), self._file as file:
            file.flush()
            self._disk.fsync(file.fileno())
        self._disk.reached(point)
        return self._file_sha256.hexdigest()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Release the handle; only `close` makes the file one to use."""
        with contextlib.suppress(OSError):
            self._file.close()


class TensorReader:
    """Reads tensors out of a file by name; safe to use from several threads."""

    def __init__(self, path: Path, offsets: Mapping[str, int]) -> None:
        """Open a file whose tensors begin at `offsets`."""
        self.path = path
        self._offsets = offsets
        self._handle = os.open(path, os.O_RDONLY)

    @classmethod
    def of_payload(cls, path: Path, tensors: Iterable[TensorSpec]) -> TensorReader:
        """A raw payload: the tensors one after another from the first byte on."""
        return cls(path, _offsets(tensors, 0))

    @classmethod
    def of_safetensors(
        cls, path: Path, tensors: tuple[TensorSpec, ...], *, source: str = ""
    ) -> TensorReader:
        """A safetensors file that holds exactly these tensors from this source.

        Raises:
            VolumeError: it does not; the file is damaged or another model's.
        """
        header = _header(tensors, source)
        with path.open("rb") as file:
            if file.read(len(header)) != header:
                raise VolumeError(f"{path} does not hold the tensors it should; it is damaged")
        return cls(path, _offsets(tensors, len(header)))

    def __contains__(self, name: object) -> bool:
        """Whether the file has a tensor of that name."""
        return name in self._offsets

    def read(self, tensor: TensorSpec, start: int, out: Array) -> None:
        """Fill `out` with the tensor's elements from `start` on."""
        offset = self._offsets[tensor.name] + start * _ITEM_BYTES
        view = encode(out)
        while view:
            count = os.preadv(self._handle, [view], offset)
            if count == 0:
                raise VolumeError(f"{self.path} ends inside tensor {tensor.name}")
            view, offset = view[count:], offset + count

    def buffers(self, tensors: Iterable[TensorSpec]) -> Iterator[memoryview]:
        """The bytes of these tensors, piece by piece; each is valid until the next."""
        buffer = np.empty(PIECE_ELEMENTS, np.float32)
        for tensor in tensors:
            for start, size in pieces(tensor):
                self.read(tensor, start, buffer[:size])
                yield encode(buffer[:size])

    def close(self) -> None:
        """Close the file; it may have been deleted meanwhile."""
        os.close(self._handle)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Close."""
        self.close()


def file_sha256(path: Path) -> str:
    """Hash of a whole file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def source_of(path: Path) -> str:
    """Who the tensors of a file come from, as its writer was told; empty if it was not."""
    with path.open("rb") as file:
        (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
        header: dict[str, dict[str, str]] = json.loads(file.read(length))
    return header.get("__metadata__", {}).get("source", "")


def _header(tensors: Iterable[TensorSpec], source: str) -> bytes:
    # Model loaders of the torch world refuse files that do not say "pt".
    metadata = {"format": "pt"} | ({"source": source} if source else {})
    entries: dict[str, object] = {"__metadata__": metadata}
    offset = 0
    for tensor in tensors:
        end = offset + tensor.num_bytes
        entries[tensor.name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return _LENGTH.pack(len(text)) + text
