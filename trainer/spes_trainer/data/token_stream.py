"""Tokens that lie in mapped files, read as sequences of equal length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spes_trainer.data.token_file import Tokens

# One row per range: which file, first token, first token behind it.
Ranges = NDArray[np.int64]

# Tokens that are looked at together when a whole stream is read.
BLOCK_TOKENS = 1 << 22


class TokenStream:
    """Ranges of files, one behind another; a rest shorter than a sequence is left out."""

    def __init__(self, files: Sequence[Tokens], ranges: Ranges, *, sequence_tokens: int) -> None:
        """Look at no token yet."""
        self._files = [
            np.asarray(file) for file in files
        ]  # slices of a memmap cost several times more
        self._ranges = ranges
        self._ends = np.cumsum(ranges[:, 2] - ranges[:, 1])
        self._length = sequence_tokens
        self.num_tokens = int(self._ends[-1]) if len(ranges) else 0
        self.dtype: np.dtype[Any] = np.result_type(np.uint8, *(file.dtype for file in files))

    def __len__(self) -> int:
        """How many sequences there are."""
        return self.num_tokens // self._length

    def sequence(self, index: int, out: Tokens) -> None:
        """Copy the tokens of one sequence into `out`."""
        position, filled = index * self._length, 0
        row = int(self._ends.searchsorted(position, side="right"))
        while filled < self._length:
            file, _, stop = self._ranges[row].tolist()
            start = stop - (int(self._ends[row]) - position)
            piece = self._files[file][start : min(stop, start + self._length - filled)]
            out[filled : filled + len(piece)] = piece
            filled, position, row = filled + len(piece), position + len(piece), row + 1


def count_tokens(files: Sequence[Tokens], ranges: Ranges, *, vocabulary: int) -> NDArray[np.int64]:
    """How often each id below `vocabulary` occurs."""
    counts = np.zeros(vocabulary, dtype=np.int64)
    for file, start, stop in ranges.tolist():
        for first in range(start, stop, BLOCK_TOKENS):
            block = files[file][first : min(stop, first + BLOCK_TOKENS)]
            counts += np.bincount(block, minlength=vocabulary)
    return counts
