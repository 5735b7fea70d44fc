"""Finds the documents of token files, which stay where they are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from spes_trainer.data.sources import DataFile, SourceFiles
from spes_trainer.data.split import is_held_out
from spes_trainer.data.token_file import Tokens, open_token_file
from spes_trainer.data.token_stream import BLOCK_TOKENS, Ranges
from spes_trainer.data.tokenizer import Tokenizer
from spes_trainer.errors import ConfigError, config_error


def scan_token_files(
    source: SourceFiles, tokenizer: Tokenizer, *, held_out_fraction: float
) -> tuple[tuple[Tokens, ...], Ranges, str]:
    """Read all tokens once, block by block.

    Returns:
        The mapped files; ranges with a fourth column, 1 for held-out documents; a fingerprint of
        names, content and split.

    Raises:
        ConfigError: a file is damaged, or its ids are not the tokenizer's.
    """
    digest = hashlib.sha256(str(held_out_fraction).encode())
    files, rows = [], []
    for index, file in enumerate(source.files):
        tokens, end = open_token_file(file.path, field=source.field)
        if end != tokenizer.end_of_text:
            expected = f"endOfDocument {tokenizer.end_of_text}, as data.tokenizer ends a text"
            raise _foreign(file, source.field, f"endOfDocument {end}", expected)
        digest.update(f"{file.name}\n{tokens.dtype} {len(tokens)}\n".encode())
        for block in _blocks(tokens):
            digest.update(block.data)
            if (highest := int(block.max())) >= tokenizer.vocabulary:
                expected = f"ids below {tokenizer.vocabulary}, the vocabulary of data.tokenizer"
                raise _foreign(file, source.field, f"id {highest}", expected)
        rows += [(index, *row) for row in _sides(tokens, end, file.name, held_out_fraction)]
        files.append(tokens)
    ranges = np.array(rows, dtype=np.int64).reshape(-1, 4)
    return tuple(files), ranges, digest.hexdigest()


def _blocks(tokens: Tokens) -> Iterator[Tokens]:
    for first in range(0, len(tokens), BLOCK_TOKENS):
        yield tokens[first : first + BLOCK_TOKENS]


def _sides(
    tokens: Tokens, end: int, name: str, held_out_fraction: float
) -> Iterator[tuple[int, int, int]]:
    """Start, stop and side of each run of documents on the same side."""
    start = stop = side = 0
    for number, document_stop in enumerate(_document_stops(tokens, end)):
        document_side = int(is_held_out(f"{name}:{number}", held_out_fraction))
        if document_side != side and stop > start:
            yield start, stop, side
            start = stop
        stop, side = document_stop, document_side
    if stop > start:
        yield start, stop, side


def _document_stops(tokens: Tokens, end: int) -> Iterator[int]:
    """Where each document stops, its end token included; the last may have none."""
    stop = 0
    for number, block in enumerate(_blocks(tokens)):
        for found in (np.flatnonzero(block == end) + number * BLOCK_TOKENS + 1).tolist():
            stop = found
            yield stop
    if stop < len(tokens):
        yield len(tokens)


def _foreign(file: DataFile, field: str, got: str, expected: str) -> ConfigError:
    hint = "set data.tokenizer to the one that made the file"
    return config_error(file.path, field, got=got, expected=expected, hint=hint)
