"""Token files: flat little-endian arrays of token ids, each described by a small file beside it.

    NAME.bin         the ids, one behind another, without a header
    NAME.bin.json    {"dtype": "uint16", "endOfDocument": 50256, "numTokens": 1000000}

`dtype` is uint8, uint16 or uint32; `endOfDocument` stands behind every document; `numTokens` may be
left out. Files are mapped, never loaded: a dataset may be larger than the memory.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from spes_sync.disk import Disk, reports_full

from spes_trainer.errors import ConfigError, config_error

Tokens = NDArray[np.unsignedinteger[Any]]

SUFFIX = ".bin"
_SIDECAR = ".json"
_DTYPES: dict[str, np.dtype[np.unsignedinteger[Any]]] = {
    name: np.dtype(code) for name, code in (("uint8", "u1"), ("uint16", "<u2"), ("uint32", "<u4"))
}


class Description(BaseModel):
    """What the file beside a token file says."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    dtype: Literal["uint8", "uint16", "uint32"]
    end_of_document: Annotated[int, Field(ge=0, lt=1 << 32, alias="endOfDocument")]
    num_tokens: Annotated[int | None, Field(ge=0, alias="numTokens")] = None


def description_path(path: Path) -> Path:
    """Where a token file is described."""
    return path.with_name(path.name + _SIDECAR)


def open_token_file(path: Path, *, field: str) -> tuple[Tokens, int]:
    """Map a token file; return its ids and the one that ends a document.

    Args:
        path: The .bin file.
        field: Names what asked for it in errors.

    Raises:
        ConfigError: it is not described, or its size is not what the description says.
    """
    description = _describe(path, field)
    dtype = _DTYPES[description.dtype]
    try:
        num_tokens, rest = divmod(path.stat().st_size, dtype.itemsize)
        whole = rest == 0 and description.num_tokens in (None, num_tokens)
        if whole and num_tokens:
            return np.memmap(path, dtype=dtype, mode="r"), description.end_of_document
    except OSError as error:
        raise _unusable(path, field, error.strerror or str(error), "a readable file") from error
    if not whole:
        wanted = "whole" if description.num_tokens is None else f"{description.num_tokens:,}"
        got = f"{num_tokens:,}" + (f" and {rest} more bytes" if rest else "")
        raise _unusable(path, field, got, f"{wanted} tokens of {description.dtype}")
    return np.empty(0, dtype), description.end_of_document


def _describe(path: Path, field: str) -> Description:
    beside = description_path(path)
    try:
        return Description.model_validate_json(beside.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        got = f"{where}: {first['msg']}"
        expected = '{"dtype": "uint16", "endOfDocument": ID}'
        raise _unusable(beside, field, got, expected) from error
    except OSError as error:
        expected = f"a JSON file that describes {path.name}"
        raise _unusable(beside, field, error.strerror or str(error), expected) from error


def _unusable(path: Path, field: str, got: str, expected: str) -> ConfigError:
    hint = "write the token file again or narrow data.include"
    return config_error(path, field, got=got, expected=expected, hint=hint)


def narrowest(vocabulary: int) -> np.dtype[Any]:
    """The smallest type that holds ids below `vocabulary`."""
    return next(d for d in _DTYPES.values() if vocabulary <= 1 << 8 * d.itemsize)


class TokenFileWriter:
    """Writes a token file front to back; `close` describes it and makes it durable."""

    def __init__(
        self, path: Path, *, dtype: np.dtype[Any], end_of_document: int, disk: Disk
    ) -> None:
        """Create the file."""
        self._path = path
        self._dtype = dtype
        self._end_of_document = end_of_document
        self._disk = disk
        self._sha256 = hashlib.sha256()
        self._num_tokens = 0
        self._file = path.open("wb")

    def write(self, tokens: Tokens) -> None:
        """Append ids, all of which the type holds."""
        data = tokens.astype(self._dtype, copy=False).data
        with reports_full(self._path, data.nbytes):
            self._file.write(data)
        self._sha256.update(data)
        self._num_tokens += len(tokens)

    def close(self) -> str:
        """Return the SHA-256 of the ids."""
        text = json.dumps(
            {
                "dtype": self._dtype.name,
                "endOfDocument": self._end_of_document,
                "numTokens": self._num_tokens,
            }
        )
        with reports_full(self._path, 0):
            self._file.flush()
            self._disk.fsync(self._file.fileno())
            description_path(self._path).write_text(text + "\n")
        return self._sha256.hexdigest()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Release the handle; only `close` makes the file one to use."""
        self._file.close()
