"""The byte tokenizer: a token id is the byte's value."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

# Bytes need this many ids; a model may have more, which then never occur.
VOCABULARY = 256
# Stands between documents. Text never holds it.
SEPARATOR = 0


def encode(content: bytes) -> NDArray[np.uint8]:
    """Return the token ids; a view, nothing is copied."""
    return np.frombuffer(content, dtype=np.uint8)


def decode(tokens: Iterable[int]) -> str:
    """Return the text; byte runs that are no UTF-8 become the replacement character."""
    return bytes(token for token in tokens if token < VOCABULARY).decode("utf-8", errors="replace")
