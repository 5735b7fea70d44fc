"""Reads documents one by one: text files, JSON lines, parquet rows.

A text file is one document; every line of a JSON lines file and every row of a parquet file is one.
A document comes in blocks, so that the largest needs no more memory than a block.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import BufferedIOBase, BufferedReader
from pathlib import Path

from spes_trainer.data.parquet import read_parquet
from spes_trainer.data.sources import DataFile, Kind, SourceFiles, unreadable
from spes_trainer.errors import ConfigError, config_error

# Bytes of text that are read, and tokenized, in one piece.
BLOCK_BYTES = 1 << 18
# A line must fit into memory several times over.
MAX_LINE_BYTES = 64 << 20
_UTF8_CONTINUATION, _UTF8_MASK = 0x80, 0xC0


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A name that is the same on every member, and the content, to be read once."""

    name: str
    blocks: Iterable[bytes]

    def pieces(self) -> Iterator[bytes]:
        """The content, at least one piece: cut behind a line's end where it exceeds a block."""
        rest = b""
        for block in self.blocks:
            rest += block
            while len(rest) > BLOCK_BYTES:
                cut = rest.rfind(b"\n", 0, BLOCK_BYTES) + 1 or _character_start(rest)
                yield rest[:cut]
                rest = rest[cut:]
        yield rest


def read_documents(source: SourceFiles) -> Iterator[Document]:
    """Yield the documents of a source in order; one must be read before the next is asked for.

    Raises:
        ConfigError: a file cannot be read, or is not what its name says; says where.
    """
    for file in source.files:
        match source.kind:
            case Kind.JSON_LINES:
                yield from _json_lines(file, source)
            case Kind.PARQUET:
                for row, text in read_parquet(file.path, source.text_field, field=source.field):
                    yield Document(name=f"{file.name}:{row}", blocks=(text,))
            case _:
                yield Document(name=file.name, blocks=_blocks(file.path, source.field))


def _blocks(path: Path, field: str) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                yield block
    except OSError as error:
        raise unreadable(path, field, error) from error


def _json_lines(file: DataFile, source: SourceFiles) -> Iterator[Document]:
    for number, line in _lines(file.path, source.field):
        if line.isspace():
            continue
        text = _text_of(line, source.text_field, _at_line(file.path, number, source))
        yield Document(name=f"{file.name}:{number}", blocks=(text,))


def _lines(path: Path, field: str) -> Iterator[tuple[int, bytes]]:
    """Lines counted from 1."""
    number = 0
    try:
        with path.open("rb") as raw, _unpacked(raw, path) as file:
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    got, expected = "a longer one", f"lines of at most {MAX_LINE_BYTES:,} bytes"
                    raise _broken(f"{path}:{number}", field, got, expected)
                yield number, line
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        got = f"{error} behind line {number}"
        raise _broken(str(path), field, got, "a whole gzip file") from error
    except OSError as error:
        raise unreadable(path, field, error) from error


def _unpacked(raw: BufferedReader, path: Path) -> BufferedIOBase:
    return gzip.GzipFile(fileobj=raw) if path.name.endswith(".gz") else raw


def _text_of(line: bytes, key: str, fail: Callable[[str], ConfigError]) -> bytes:
    try:
        row = json.loads(line)
        if isinstance(row, dict) and isinstance(row.get(key), str):
            text: str = row[key]
            return text.encode()
    except (ValueError, RecursionError) as error:  # of JSON, or a lone surrogate
        raise fail(str(error)) from error
    if isinstance(row, dict):
        raise fail(f"{key}: {json.dumps(row[key])[:40]}" if key in row else f"keys {_some(row)}")
    raise fail(f"a {type(row).__name__}")


def _some(keys: Iterable[str]) -> str:
    return ", ".join(sorted(keys)[:8]) or "none"


def _at_line(path: Path, number: int, source: SourceFiles) -> Callable[[str], ConfigError]:
    expected = f"a JSON object with text in its field {source.text_field!r} on every line"
    return lambda got: _broken(f"{path}:{number}", source.field, got, expected)


def _broken(where: str, field: str, got: str, expected: str) -> ConfigError:
    hint = "correct the file, set textField, or narrow data.include"
    return config_error(where, field, got=got, expected=expected, hint=hint)


def _character_start(text: bytes) -> int:
    """The last place in the first block where a UTF-8 character may begin."""
    cut = BLOCK_BYTES
    while cut > BLOCK_BYTES - 3 and text[cut] & _UTF8_MASK == _UTF8_CONTINUATION:
        cut -= 1
    return cut
