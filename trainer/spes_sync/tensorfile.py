"""Tensors in safetensors files, written in one pass and read by the piece.

The data region holds the tensors by name without gaps, each in its codec: it is, byte for byte, the
payload that a pull of all of them sends. Reading gives float32 whatever the codec. Files are read
with pread into small buffers, never mapped: mapped pages would count as the server's memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from spes_sync.codec import Array, encode
from spes_sync.disk import Disk, reports_full
from spes_sync.errors import VolumeError
from spes_sync.hashes import root_sha256
from spes_sync.manifest import Manifest, TensorSpec
from spes_sync.payloads import (
    ALL_FP32,
    Codecs,
    codec_of,
    payload_bytes,
    pieces,
    tensor_bytes,
)
from spes_sync.quantize import PIECE_ELEMENTS, Codec, decode, encoded_bytes

_ITEM_BYTES = 4
# As the format spells them; it knows no values that share a scale or a span: those are plain bytes.
_DTYPES = {Codec.FP32: "F32", Codec.BF16: "BF16"}
_PLAIN_BYTES = "U8"
# Tensors begin on a multiple of this, as the format recommends.
_ALIGNMENT = 8
_LENGTH = struct.Struct("<Q")
# The entry of the header that is no tensor.
_METADATA = "__metadata__"


def _offsets(tensors: Iterable[TensorSpec], codecs: Codecs, start: int) -> dict[str, int]:
    offsets: dict[str, int] = {}
    for tensor in tensors:
        offsets[tensor.name] = start
        start += tensor_bytes(tensor, codecs)
    return offsets


class PlainWriter:
    """Writes a safetensors file front to back; `finish` makes it durable. Hashes nothing."""

    def __init__(
        self,
        path: Path,
        tensors: tuple[TensorSpec, ...],
        disk: Disk,
        *,
        source: str = "",
        codecs: Codecs = ALL_FP32,
    ) -> None:
        """Write the header: the tensors, their order and who they come from are known by now."""
        self.path = path
        self.header = _header(tensors, source, codecs)
        self._disk = disk
        self._num_bytes = payload_bytes(tensors, codecs)
        self._file = path.open("wb")
        self.write(self.header)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes of the next tensor."""
        with reports_full(self.path, self._num_bytes):
            self._file.write(data)

    def finish(self, point: str) -> None:
        """Flush, fsync, close."""
        with reports_full(self.path, self._num_bytes), self._file as file:
            file.flush()
            self._disk.fsync(file.fileno())
        self._disk.reached(point)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Release the handle; only `finish` makes the file one to use."""
        with contextlib.suppress(OSError):
            self._file.close()


class TensorWriter(PlainWriter):
    """Writes a safetensors file and hashes it on the way."""

    def __init__(
        self, path: Path, tensors: tuple[TensorSpec, ...], disk: Disk, *, source: str = ""
    ) -> None:
        """Write the header: of float32 tensors from this source."""
        self._sha256 = hashlib.sha256()
        super().__init__(path, tensors, disk, source=source)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes of the next tensor."""
        super().write(data)
        self._sha256.update(data)

    def close(self, point: str) -> str:
        """Flush, fsync, close; returns the SHA-256 of the file."""
        self.finish(point)
        return self._sha256.hexdigest()


class TensorReader:
    """Reads tensors out of a file by name; safe to use from several threads."""

    def __init__(self, path: Path, offsets: Mapping[str, int], codecs: Codecs) -> None:
        """Open a file whose tensors begin at `offsets`."""
        self.path = path
        self._offsets = offsets
        self._codecs = codecs
        self._handle = os.open(path, os.O_RDONLY)

    @classmethod
    def of_payload(
        cls, path: Path, tensors: Iterable[TensorSpec], *, codecs: Codecs = ALL_FP32
    ) -> TensorReader:
        """A raw payload: the tensors one after another from the first byte on."""
        return cls(path, _offsets(tensors, codecs, 0), codecs)

    @classmethod
    def of_safetensors(
        cls,
        path: Path,
        tensors: tuple[TensorSpec, ...],
        *,
        source: str = "",
        codecs: Codecs = ALL_FP32,
    ) -> TensorReader:
        """A safetensors file that holds exactly these tensors, so coded, from this source.

        Raises:
            VolumeError: it does not; the file is damaged or another model's.
        """
        header = _header(tensors, source, codecs)
        with path.open("rb") as file:
            if file.read(len(header)) != header:
                raise VolumeError(f"{path} does not hold the tensors it should; it is damaged")
        return cls(path, _offsets(tensors, codecs, len(header)), codecs)

    def __contains__(self, name: object) -> bool:
        """Whether the file has a tensor of that name."""
        return name in self._offsets

    def codec(self, tensor: TensorSpec) -> Codec:
        """How the tensor is coded."""
        return codec_of(tensor, self._codecs)

    def read(self, tensor: TensorSpec, start: int, out: Array) -> None:
        """Fill `out` with the tensor's values from `start` on, a multiple of PIECE_ELEMENTS."""
        if self.codec(tensor) is Codec.FP32:
            self._fill(encode(out), tensor, start)
        else:
            decode(self.codec(tensor), self.encoded(tensor, start, out.size), out)

    def encoded(self, tensor: TensorSpec, start: int, size: int) -> bytearray:
        """The bytes of `size` values from `start` on, a multiple of PIECE_ELEMENTS."""
        data = bytearray(encoded_bytes(self.codec(tensor), size))
        self._fill(memoryview(data), tensor, start)
        return data

    def buffers(self, tensors: Iterable[TensorSpec]) -> Iterator[memoryview]:
        """The bytes of these tensors, piece by piece; each is valid until the next."""
        buffer = np.empty(PIECE_ELEMENTS * _ITEM_BYTES, np.uint8)
        for tensor in tensors:
            for start, size in pieces(tensor):
                view = buffer[: encoded_bytes(self.codec(tensor), size)].data
                self._fill(view, tensor, start)
                yield view

    def close(self) -> None:
        """Close the file; it may have been deleted meanwhile."""
        os.close(self._handle)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Close."""
        self.close()

    def _fill(self, view: memoryview, tensor: TensorSpec, start: int) -> None:
        offset = self._offsets[tensor.name] + encoded_bytes(self.codec(tensor), start)
        while view:
            count = os.preadv(self._handle, [view], offset)
            if count == 0:
                raise VolumeError(f"{self.path} ends inside tensor {tensor.name}")
            view, offset = view[count:], offset + count


def file_sha256(path: Path) -> str:
    """Hash of a whole file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tensors_sha256(path: Path) -> str:
    """The root of a safetensors file: over its header and the hash of each tensor.

    Raises:
        VolumeError: it is no such file.
    """
    header, entries = _read_header(path)
    try:
        ends = [entry["data_offsets"][1] for name, entry in entries.items() if name != _METADATA]
    except (AttributeError, LookupError, TypeError) as error:
        raise VolumeError(f"the header of {path} is damaged") from error
    hashes, start = [], 0
    with path.open("rb") as file:
        file.seek(len(header))
        for end in ends:
            hashes.append(_range_sha256(file, end - start))
            start = end
        if file.read(1):
            raise VolumeError(f"{path} goes on after its last tensor; it is damaged")
    return root_sha256(hashes, header=header)


def source_of(path: Path) -> str:
    """Who the tensors of a file come from, as its writer was told; empty if it was not."""
    source: str = _entries(path).get(_METADATA, {}).get("source", "")
    return source


def tensors_in(path: Path, manifest: Manifest) -> tuple[TensorSpec, ...]:
    """The manifest's tensors that a safetensors file says it holds."""
    entries = _entries(path)
    return tuple(tensor for tensor in manifest if tensor.name in entries)


def _range_sha256(file: BinaryIO, num_bytes: int) -> str:
    digest = hashlib.sha256()
    while num_bytes > 0 and (data := file.read(min(num_bytes, PIECE_ELEMENTS * _ITEM_BYTES))):
        digest.update(data)
        num_bytes -= len(data)
    return digest.hexdigest()


def _entries(path: Path) -> dict[str, dict[str, Any]]:
    return _read_header(path)[1]


def _read_header(path: Path) -> tuple[bytes, dict[str, dict[str, Any]]]:
    """The header's bytes, and what they say of each tensor."""
    try:
        with path.open("rb") as file:
            start = file.read(_LENGTH.size)
            (length,) = _LENGTH.unpack(start)
            if length > path.stat().st_size:
                raise VolumeError(f"{path} is cut short; it is damaged")
            text = file.read(length)
        entries: dict[str, dict[str, Any]] = json.loads(text)
    except (ValueError, struct.error) as error:
        raise VolumeError(f"{path} is no safetensors file; it is damaged") from error
    return start + text, entries


def _header(tensors: Iterable[TensorSpec], source: str, codecs: Codecs) -> bytes:
    # Model loaders of the torch world refuse files that do not say "pt".
    metadata = {"format": "pt"} | ({"source": source} if source else {})
    entries: dict[str, object] = {_METADATA: metadata}
    offset = 0
    for tensor in tensors:
        codec = codec_of(tensor, codecs)
        end = offset + tensor_bytes(tensor, codecs)
        entries[tensor.name] = {
            "dtype": _DTYPES.get(codec, _PLAIN_BYTES),
            "shape": list(tensor.shape) if codec in _DTYPES else [end - offset],
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return _LENGTH.pack(len(text)) + text
