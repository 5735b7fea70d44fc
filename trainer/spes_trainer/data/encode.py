"""Turns a stream of documents into a stream of token ids, in batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from spes_trainer.data.documents import BLOCK_BYTES, Document
from spes_trainer.data.token_file import Tokens, narrowest
from spes_trainer.data.tokenizer import NotTextError, Tokenizer
from spes_trainer.errors import config_error

# Pieces that are tokenized together: enough to keep the threads of a tokenizer busy.
_BATCH_BYTES, _BATCH_PIECES = 4 * BLOCK_BYTES, 4096

# A document's name and its next piece; None behind its last.
_Item = tuple[str, bytes | None]


def encode_documents(
    documents: Iterable[Document], tokenizer: Tokenizer, *, field: str
) -> Iterator[tuple[str, Tokens]]:
    """Yield each document's name with its tokens, piece by piece, `end_of_text` the last of them.

    Raises:
        ConfigError: a document is not the text that the tokenizer takes; names it.
    """
    batch: list[_Item] = []
    num_bytes = 0
    for document in documents:
        for piece in document.pieces():
            batch.append((document.name, piece))
            num_bytes += len(piece)
            if num_bytes >= _BATCH_BYTES or len(batch) >= _BATCH_PIECES:
                yield from _encode(batch, tokenizer, field)
                batch, num_bytes = [], 0
        batch.append((document.name, None))
    yield from _encode(batch, tokenizer, field)


def _encode(batch: list[_Item], tokenizer: Tokenizer, field: str) -> Iterator[tuple[str, Tokens]]:
    end = np.array([tokenizer.end_of_text], dtype=narrowest(tokenizer.vocabulary))
    pieces = [(name, piece) for name, piece in batch if piece is not None]
    try:
        encoded = iter(tokenizer.encode([piece for _, piece in pieces]))
    except NotTextError as error:
        raise config_error(
            pieces[error.index][0],
            field,
            got=str(error),
            expected="UTF-8 text",
            hint="convert the file or narrow data.include",
        ) from error
    for name, piece in batch:
        yield name, end if piece is None else next(encoded)
