"""Data are tokenized once: reused when nothing changed, again when something did, never half."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest
from builders.datasets import (
    corpus_of,
    data_spec,
    make_preparation,
    words,
    write_json_lines,
    write_texts,
)
from spes_trainer.data.corpus import build_corpus
from spes_trainer.data.prepare import prepare
from spes_trainer.data.sources import find_sources
from spes_trainer.errors import DiskFullError


class CountingTokenizer:
    """The byte tokenizer; counts the bytes that it was given and the most at once."""

    vocabulary, end_of_text, identity = 256, 0, "counting"

    def __init__(self) -> None:
        self.num_bytes = self.most = 0

    def encode(self, texts):
        size = sum(map(len, texts))
        self.num_bytes, self.most = self.num_bytes + size, max(self.most, size)
        return [np.frombuffer(text, dtype=np.uint8) for text in texts]

    def decode(self, tokens):
        return bytes(tokens).decode()


@pytest.fixture
def data_root(tmp_path):
    write_json_lines(tmp_path / "data" / "words" / "a.jsonl", words(200))
    return tmp_path / "data"


def test_text_is_tokenized_once(data_root):
    first, second = CountingTokenizer(), CountingTokenizer()
    before = corpus_of(data_root, data_spec(), tokenizer=first)
    after = corpus_of(data_root, data_spec(sequenceTokens=32), tokenizer=second)
    assert first.num_bytes == sum(map(len, words(200)))
    assert second.num_bytes == 0
    assert before.num_sequences // 2 == pytest.approx(after.num_sequences, abs=1)


@pytest.mark.parametrize("change", ["content", "time", "split", "field", "tokenizer"])
def test_whatever_the_tokens_depend_on_makes_them_anew(data_root, change):
    corpus_of(data_root, data_spec(), tokenizer=CountingTokenizer())
    tokenizer, spec = CountingTokenizer(), data_spec()
    path = data_root / "words" / "a.jsonl"
    if change == "content":
        write_json_lines(path, words(201))
    elif change == "time":
        os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    elif change == "split":
        spec = data_spec(heldOutFraction=0.5)
    elif change == "field":
        write_json_lines(path, words(200), key="body")
        spec = data_spec(sources=[{"dataset": {"name": "words", "textField": "body"}}])
    else:
        tokenizer.identity = "another"
    corpus_of(data_root, spec, tokenizer=tokenizer)
    assert tokenizer.num_bytes > 0
    (only,) = (data_root.parent / "prepared").iterdir()
    assert {file.name for file in only.iterdir()} >= {"train.bin", "held-out.bin"}


def test_what_others_put_beside_prepared_data_is_never_removed(data_root):
    theirs = data_root.parent / "prepared" / "dataset" / "a.txt"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("somebody's only copy")
    corpus_of(data_root, data_spec(), tokenizer=CountingTokenizer())
    assert theirs.read_text() == "somebody's only copy"


def test_another_source_leaves_the_first_as_it_is(data_root):
    corpus_of(data_root, data_spec(), tokenizer=CountingTokenizer())
    write_json_lines(data_root / "more" / "b.jsonl", words(50))
    tokenizer = CountingTokenizer()
    sources = [{"dataset": {"name": "words"}}, {"dataset": {"name": "more"}}]
    corpus_of(data_root, data_spec(sources=sources), tokenizer=tokenizer)
    assert tokenizer.num_bytes == sum(map(len, words(50)))


@pytest.mark.parametrize("file", ["train.bin", "held-out.bin.json", "counts.npy", "prepared.json"])
@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_damaged_files_are_made_anew(data_root, caplog, file, damage):
    before = corpus_of(data_root, data_spec()).fingerprint
    (path,) = (data_root.parent / "prepared").rglob(file)
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert corpus_of(data_root, data_spec()).fingerprint == before
    assert "preparing again" in caplog.text


class Killed(BaseException):
    """As if the process had ended here."""


def test_a_kill_leaves_nothing_half_done(data_root):
    def die(point: str) -> None:
        raise Killed(point)

    (source,) = find_sources(data_spec(), data_root=data_root)
    directory = data_root.parent / "prepared"
    with pytest.raises(Killed, match="data prepared"):
        prepare(source, make_preparation(directory, reached=die))
    assert list(directory.iterdir()) == []
    left_over = directory / ".0123.partial"
    left_over.mkdir()
    corpus_of(data_root, data_spec())
    assert not left_over.exists()


@pytest.mark.parametrize("written", range(1, 5))
def test_a_full_disk_is_named_and_leaves_no_part(data_root, written):
    left = [written]

    def fsync(descriptor: int) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        os.fsync(descriptor)

    directory = data_root.parent / "prepared"
    (source,) = find_sources(data_spec(), data_root=data_root)
    with pytest.raises(DiskFullError, match="no space left"):
        prepare(source, make_preparation(directory, fsync=fsync))
    assert list(directory.iterdir()) == []


def test_memory_is_bounded_by_the_batch_not_by_the_data(tmp_path):
    """A large file comes in blocks, many small ones in batches."""
    root, tokenizer = tmp_path / "data", CountingTokenizer()
    texts = {f"{i:03d}": b"x\n" * 20_000 for i in range(300)} | {"large": b"y\n" * 6_000_000}
    write_texts(root / "words", texts)
    spec = data_spec(heldOutFraction=0.1)
    sources = find_sources(spec, data_root=root)
    preparation = make_preparation(tmp_path / "prepared", tokenizer=tokenizer)
    build_corpus(sources, spec, preparation)
    assert tokenizer.num_bytes == sum(map(len, texts.values()))
    assert tokenizer.most <= 2 << 20
