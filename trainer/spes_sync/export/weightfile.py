"""safetensors files of any origin, read one tensor at a time.

The safetensors package reads no bfloat16 into numpy, and most published models are bfloat16. The
format: the header's length (8 bytes, little-endian), a JSON header, then the tensors' bytes.
https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from spes_sync.codec import Array
from spes_sync.errors import ExportError

Shape = tuple[int, ...]

# The format's own limit on headers.
MAX_HEADER_BYTES = 100_000_000
_DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}


class _Entry(BaseModel):
    """One tensor of a header; bounds keep a hostile file from asking for memory."""

    dtype: Literal["F32", "F16", "BF16"]
    shape: Annotated[list[Annotated[int, Field(ge=1)]], Field(max_length=8)]
    data_offsets: tuple[Annotated[int, Field(ge=0)], int]

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * int(_DTYPES[self.dtype].itemsize)


_HEADER = TypeAdapter(dict[str, _Entry])


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFile:
    """A file whose header was checked against its size; tensors are read on demand."""

    path: Path
    _entries: Mapping[str, _Entry]
    _data_start: int

    @classmethod
    def open(cls, path: Path) -> WeightFile:
        """Read and check the header.

        Raises:
            ExportError: not a safetensors file, truncated, or of other types than F32, F16, BF16.
        """
        try:
            text, start = _read_header(path)
            entries = _HEADER.validate_python(
                {k: v for k, v in json.loads(text).items() if k != "__metadata__"}
            )
        except (OSError, ValueError, AttributeError, RecursionError, struct.error) as error:
            raise ExportError(
                f"{path} is not a readable safetensors file: {_reason(error)}"
            ) from error
        num_bytes = path.stat().st_size - start
        for name, entry in entries.items():
            begin, end = entry.data_offsets
            if end - begin != entry.num_bytes or end > num_bytes:
                raise ExportError(
                    f"{path}: {name} lies at bytes {begin}-{end} of {num_bytes} (expected "
                    f"{entry.num_bytes} bytes); the file is truncated or damaged"
                )
        return cls(path=path, _entries=entries, _data_start=start)

    @property
    def shapes(self) -> dict[str, Shape]:
        """Names and shapes, in the file's order."""
        return {name: tuple(entry.shape) for name, entry in self._entries.items()}

    def read(self, name: str) -> Array:
        """One tensor as float32; half-precision values are widened exactly."""
        entry = self._entries[name]
        values = np.fromfile(
            self.path,
            dtype=_DTYPES[entry.dtype],
            count=math.prod(entry.shape),
            offset=self._data_start + entry.data_offsets[0],
        ).reshape(entry.shape)
        if entry.dtype == "BF16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(np.float32, copy=False)


def _read_header(path: Path) -> tuple[bytes, int]:
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > MAX_HEADER_BYTES:
            raise ValueError(f"header of {length} bytes (at most {MAX_HEADER_BYTES})")
        return file.read(length), 8 + length


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']} (got {first['input']!r:.100})"
    return str(error)
