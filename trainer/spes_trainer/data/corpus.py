"""The training and held-out tokens of a job, cut into sequences.

Documents are concatenated in the order of their names with a separator behind each, and cut into
sequences of equal length; a rest shorter than a sequence is left out. Holds everything in memory;
caches nothing on disk.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from spes_api.job import DataSpec

from spes_trainer.data import tokenizer
from spes_trainer.data.documents import Document
from spes_trainer.data.split import held_out
from spes_trainer.errors import config_error

Tokens = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """All sequences of one member."""

    train: Tokens
    held_out: Tokens
    fingerprint: str
    """Hash of both parts: equal on members whose data are equal."""
    unigram_loss: float
    """Entropy of the held-out bytes, nats per token: what the best context-free model reaches."""

    @property
    def num_sequences(self) -> int:
        """Training sequences in one epoch."""
        return len(self.train)

    def evaluation(self, num_tokens: int) -> Tokens:
        """Return at most so many held-out tokens as sequences, always the same, spread evenly."""
        available, length = self.held_out.shape
        wanted = min(available, math.ceil(num_tokens / length))
        chosen = np.arange(wanted) * available // max(wanted, 1)
        sequences: Tokens = self.held_out[chosen]
        return sequences


def build_corpus(documents: Sequence[Document], spec: DataSpec, *, source: str) -> Corpus:
    """Split, concatenate and cut the documents.

    Args:
        documents: Sorted by name.
        spec: Sequence length and held-out share.
        source: Names the data in errors.

    Raises:
        ConfigError: too little text for one sequence on either side.
    """
    kept_out = held_out([document.name for document in documents], spec.held_out_fraction)
    train = _concatenate([d for d in documents if d.name not in kept_out])
    evaluated = _concatenate([d for d in documents if d.name in kept_out])
    length = spec.sequence_tokens
    if len(train) < length:
        raise config_error(
            source,
            "data.sources",
            got=f"{len(train)} training tokens in {len(documents)} documents",
            expected=f"at least one sequence of data.sequenceTokens = {length}",
            hint="add text or shorten the sequences",
        )
    if spec.held_out_fraction > 0 and len(evaluated) < length:
        raise config_error(
            source,
            "data.heldOutFraction",
            got=f"{len(evaluated)} tokens in {len(kept_out)} of {len(documents)} documents",
            expected=f"a share that holds at least one sequence of {length} tokens",
            hint="raise it, split the text into more files, or set it to 0",
        )
    digest = hashlib.sha256(f"{length}\n{len(train)}\n".encode())
    digest.update(train.data)
    digest.update(evaluated.data)
    return Corpus(
        train=_cut(train, length),
        held_out=_cut(evaluated, length),
        fingerprint=digest.hexdigest(),
        unigram_loss=_entropy(evaluated),
    )


def _concatenate(documents: Sequence[Document]) -> Tokens:
    separator = bytes([tokenizer.SEPARATOR])
    return tokenizer.encode(b"".join(d.content + separator for d in documents))


def _cut(tokens: Tokens, length: int) -> Tokens:
    num_sequences = len(tokens) // length
    return tokens[: num_sequences * length].reshape(num_sequences, length)


def _entropy(tokens: Tokens) -> float:
    counts = np.bincount(tokens, minlength=tokenizer.VOCABULARY)
    shares = counts[counts > 0] / max(len(tokens), 1)
    return float(-(shares * np.log(shares)).sum())
