"""Small datasets in every format, a small tokenizer, and what is made of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from spes_api.job import DataSpec
from spes_sync.disk import Disk
from spes_trainer.data.corpus import Corpus, build_corpus
from spes_trainer.data.prepare import Preparation
from spes_trainer.data.sources import find_sources
from spes_trainer.data.tokenizer import ByteTokenizer, Tokenizer
from tokenizers import Tokenizer as BpeTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

END_OF_TEXT = "<|endoftext|>"


def data_spec(**changes) -> DataSpec:
    """The dataset `words` in sequences of 16 bytes; keyword arguments change it."""
    spec = {"sources": [{"dataset": {"name": "words"}}], "sequenceTokens": 16}
    return DataSpec.model_validate(spec | changes)


def make_preparation(
    directory: Path, *, tokenizer: Tokenizer | None = None, held_out: float = 0.05, **disk
) -> Preparation:
    """With the byte tokenizer unless told otherwise."""
    return Preparation(
        tokenizer=tokenizer or ByteTokenizer(),
        held_out_fraction=held_out,
        directory=directory,
        disk=Disk(**disk),
    )


def corpus_of(data_root: Path, spec: DataSpec, *, tokenizer: Tokenizer | None = None) -> Corpus:
    """What a trainer whose directory is beside the data makes of them."""
    preparation = make_preparation(
        data_root.parent / "prepared", tokenizer=tokenizer, held_out=spec.held_out_fraction
    )
    return build_corpus(find_sources(spec, data_root=data_root), spec, preparation)


def write_texts(folder: Path, texts: Mapping[str, bytes]) -> None:
    """One file per text."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_bytes(text)


def write_json_lines(path: Path, texts: Sequence[str], *, key: str = "text") -> Path:
    """One line per text; compressed if the name ends so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(json.dumps({"id": i, key: text}) + "\n" for i, text in enumerate(texts))
    data = content.encode()
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return path


def write_tokens(
    path: Path, documents: Sequence[Sequence[int]], *, end: int = 0, dtype: str = "uint16"
) -> Path:
    """A token file as a stranger makes it: the end id behind each document, no count."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ids = [token for document in documents for token in (*document, end)]
    np.array(ids, dtype=dtype).tofile(path)
    description = {"dtype": dtype, "endOfDocument": end}
    path.with_name(path.name + ".json").write_text(json.dumps(description))
    return path


def write_tokenizer(path: Path, *, vocabulary: int = 300) -> Path:
    """A byte-level BPE tokenizer with one special token, whose id is 0."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer = BpeTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the quick brown fox jumps over the lazy dog"] * 9, trainer)
    tokenizer.save(str(path))
    return path


def words(num: int, *, start: int = 0) -> list[str]:
    """Texts that differ from each other and are longer than a sequence of 16 bytes."""
    return [f"{i:04d} the quick brown fox" for i in range(start, start + num)]
