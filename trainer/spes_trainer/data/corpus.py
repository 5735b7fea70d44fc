"""The training and held-out tokens of a job as sequences, without holding them in memory.

Packing: the documents of a source are concatenated in the order of their names, an end-of-text
token behind each, and cut into sequences of equal length, which may hold several documents and
parts of documents; a rest shorter than a sequence is left out. With `data.documentMask` attention
ends at the borders of documents all the same.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from spes_api.job import DataSpec

from spes_trainer.data.order import Pick, SequenceOrder, Share, Split, apportion
from spes_trainer.data.prepare import Preparation, PreparedSource, prepare, remove_others
from spes_trainer.data.sources import SourceFiles
from spes_trainer.data.token_file import Tokens
from spes_trainer.data.token_stream import TokenStream
from spes_trainer.errors import config_error


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStreams:
    """Both sides of one source."""

    train: TokenStream
    held_out: TokenStream
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """All sequences of one member."""

    sources: tuple[SourceStreams, ...]
    sequence_tokens: int
    fingerprint: str
    """Hash of both parts: equal on members whose data are equal."""
    unigram_loss: float
    """Entropy of the held-out tokens, nats per token: what the best context-free model reaches."""
    document_end: int | None
    """With data.documentMask the token behind every document, where attention ends."""

    @property
    def num_sequences(self) -> int:
        """Training sequences of all sources, each counted once."""
        return sum(len(source.train) for source in self.sources)

    @property
    def num_held_out_tokens(self) -> int:
        """Held-out tokens that lie in whole sequences."""
        return sum(len(source.held_out) for source in self.sources) * self.sequence_tokens

    def describe(self) -> dict[str, object]:
        """For people and reports."""
        return {
            "fingerprint": self.fingerprint,
            "numSequences": self.num_sequences,
            "heldOutTokens": self.num_held_out_tokens,
            "unigramLoss": self.unigram_loss,
        }

    def order(self, *, seed: int, split: Split, peer: str) -> SequenceOrder:
        """The order in which a peer, or all of them together, train on the sequences."""
        shares = [Share(len(source.train), source.weight) for source in self.sources]
        return SequenceOrder(shares, seed=seed, split=split, peer=peer)

    def take(self, picks: Sequence[Pick]) -> Tokens:
        """Return training sequences, one a row."""
        return self._read([source.train for source in self.sources], picks)

    def evaluation(self, num_tokens: int) -> Tokens:
        """Return at most so many held-out tokens as sequences, always the same.

        They are spread evenly over each source, and over the sources by weight.
        """
        streams = [source.held_out for source in self.sources]
        num_sequences = math.ceil(num_tokens / self.sequence_tokens)
        parts = apportion(num_sequences, [source.weight for source in self.sources])
        picks = []
        for index, (stream, part) in enumerate(zip(streams, parts, strict=True)):
            wanted = min(len(stream), part)
            picks += [Pick(index, i * len(stream) // wanted) for i in range(wanted)]
        return self._read(streams, picks)

    def _read(self, streams: Sequence[TokenStream], picks: Sequence[Pick]) -> Tokens:
        dtype = np.result_type(*(stream.dtype for stream in streams))
        rows = np.empty((len(picks), self.sequence_tokens), dtype=dtype)
        for row, pick in zip(rows, picks, strict=True):
            streams[pick.source].sequence(pick.sequence, row)
        return rows


def build_corpus(
    sources: tuple[SourceFiles, ...], spec: DataSpec, preparation: Preparation
) -> Corpus:
    """Prepare all sources and cut them into sequences.

    Raises:
        ConfigError: a source cannot be used, or has too little text for one sequence.
        DiskFullError: there is no room for the tokens.
    """
    prepared = [prepare(source, preparation) for source in sources]
    remove_others(sources, preparation)
    streams = tuple(
        _cut(one, source, spec.sequence_tokens)
        for one, source in zip(prepared, sources, strict=True)
    )
    _require_held_out(streams, spec)
    digest = hashlib.sha256(str(spec.sequence_tokens).encode())
    for one, source in zip(prepared, sources, strict=True):
        digest.update(f"\n{source.weight} {one.fingerprint}".encode())
    return Corpus(
        sources=streams,
        sequence_tokens=spec.sequence_tokens,
        fingerprint=digest.hexdigest(),
        unigram_loss=_entropy(np.sum([one.held_out_counts for one in prepared], axis=0)),
        document_end=preparation.tokenizer.end_of_text if spec.document_mask else None,
    )


def _cut(prepared: PreparedSource, source: SourceFiles, length: int) -> SourceStreams:
    train, held_out = (
        TokenStream(prepared.files, ranges, sequence_tokens=length)
        for ranges in (prepared.train, prepared.held_out)
    )
    if len(train) == 0:
        raise config_error(
            source.files[0].path.parent,
            source.field,
            got=f"{train.num_tokens:,} training tokens in {len(source.files):,} files",
            expected=f"at least one sequence of data.sequenceTokens = {length:,}",
            hint="add text or shorten the sequences",
        )
    return SourceStreams(train=train, held_out=held_out, weight=source.weight)


def _require_held_out(streams: Sequence[SourceStreams], spec: DataSpec) -> None:
    if spec.held_out_fraction == 0 or any(len(stream.held_out) for stream in streams):
        return
    num_tokens = sum(stream.held_out.num_tokens for stream in streams)
    raise config_error(
        "spec",
        "data.heldOutFraction",
        got=f"{num_tokens:,} held-out tokens",
        expected=f"a share that holds at least one sequence of {spec.sequence_tokens:,} tokens",
        hint="raise it, split the text into more documents, or set it to 0",
    )


def _entropy(counts: NDArray[np.int64]) -> float:
    shares = counts[counts > 0] / max(counts.sum(), 1)
    return float(-(shares * np.log(shares)).sum())
