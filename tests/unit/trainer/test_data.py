"""Documents, split, order, corpus."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders.nano import nano_spec, write_words
from hypothesis import given
from hypothesis import strategies as st
from spes_api.job import DataSpec
from spes_trainer.assembly import read_corpus
from spes_trainer.data.corpus import build_corpus
from spes_trainer.data.documents import Document, read_documents
from spes_trainer.data.split import SequenceOrder, held_out
from spes_trainer.data.tokenizer import decode, encode
from spes_trainer.errors import ConfigError


def data_spec(**changes) -> DataSpec:
    spec = {"sources": [{"dataset": {"name": "words"}}], "sequenceTokens": 16}
    return DataSpec.model_validate(spec | changes)


def test_documents_come_in_the_order_of_their_names(tmp_path):
    folder = tmp_path / "words"
    (folder / "b").mkdir(parents=True)
    for name in ("c.txt", "b/z.txt", "a.txt"):
        (folder / name).write_text(name)
    documents = read_documents(data_spec(), data_root=tmp_path)
    assert [d.name for d in documents] == ["words/a.txt", "words/b/z.txt", "words/c.txt"]
    assert documents[1].content == b"b/z.txt"


def test_include_filters_file_names(tmp_path):
    write_words(tmp_path)
    (tmp_path / "words" / "notes.md").write_text("no")
    names = {d.name for d in read_documents(data_spec(include="[01].txt"), data_root=tmp_path)}
    assert names == {"words/0.txt", "words/1.txt"}


def test_a_dataset_path_may_be_one_file(tmp_path):
    write_words(tmp_path)
    spec = data_spec(sources=[{"dataset": {"name": "words", "path": "3.txt"}}])
    assert [d.name for d in read_documents(spec, data_root=tmp_path)] == ["words/3.txt"]


def test_the_standard_library_is_there_without_its_tests():
    spec = data_spec(sources=[{"builtin": "python-stdlib"}], include="*.py")
    names = [d.name for d in read_documents(spec, data_root=Path("/nowhere"))]
    assert "python-stdlib/argparse.py" in names
    assert not [n for n in names if "/test/" in n or "site-packages" in n or "/encodings/" in n]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (data_spec(), r"nowhere/words: data.sources\[0\].dataset must be an existing file"),
        (data_spec(include="*.nothing"), r"must be a folder with files that match '\*.nothing'"),
        (
            data_spec(sources=[{"dataset": {"name": "words", "path": "link"}}]),
            r"data.sources\[0\].dataset.path must be a path inside",
        ),
        (data_spec(sequenceTokens=100_000), r"data.sources must be at least one sequence"),
    ],
    ids=["missing", "nothing matches", "outside", "too short"],
)
def test_unusable_data_is_named(tmp_path, spec, message):
    root = tmp_path / "nowhere" if "nowhere" in message else write_words(tmp_path)
    if root != tmp_path / "nowhere":
        (root / "words" / "link").symlink_to(tmp_path.parent)
    with pytest.raises(ConfigError, match=message) as raised:
        build_corpus(read_documents(spec, data_root=root), spec, source=str(root))
    assert "got" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_data_lists_what_is_there(tmp_path):
    (tmp_path / "wrods").mkdir()
    with pytest.raises(ConfigError, match=r"holds wrods"):
        read_documents(data_spec(), data_root=tmp_path)


def test_a_vocabulary_below_the_tokenizers_is_refused(tmp_path):
    spec = nano_spec()
    small = spec.model.config.model_copy(update={"vocabulary": 100})
    spec = spec.model_copy(update={"model": spec.model.model_copy(update={"config": small})})
    with pytest.raises(ConfigError, match=r"model.config.vocabulary must be at least 256"):
        read_corpus(spec, data_root=tmp_path)


def test_bytes_survive_the_tokenizer():
    text = "naïve \N{SNOWMAN} text"
    assert decode(encode(text.encode()).tolist()) == text
    assert decode([255, 104, 300]) == "\N{REPLACEMENT CHARACTER}h"


names = st.lists(st.text("abc/.", min_size=1, max_size=12), min_size=2, max_size=40, unique=True)


@given(names=names, fraction=st.floats(0.01, 0.9))
def test_both_sides_of_the_split_get_documents(names, fraction):
    kept = held_out(names, fraction)
    assert 1 <= len(kept) < len(names)
    assert kept == held_out(names[::-1], fraction)


def test_a_document_stays_on_its_side_when_others_come():
    names = [f"d{i}" for i in range(400)]
    few, many = held_out(names[:200], 0.1), held_out(names, 0.1)
    assert few == {name for name in many if name in names[:200]}
    assert 0.05 < len(many) / 400 < 0.15


@given(num=st.integers(1, 50), seed=st.integers(0, 5), epoch=st.integers(0, 3))
def test_an_epoch_is_a_permutation(num, seed, epoch):
    order = SequenceOrder(num, seed=seed, split="Disjoint", peer="a")
    assert sorted(order.at(range(num * epoch, num * (epoch + 1)))) == list(range(num))


def test_epochs_and_seeds_differ():
    order = SequenceOrder(100, seed=0, split="Disjoint", peer="a")
    other = SequenceOrder(100, seed=1, split="Disjoint", peer="a")
    first, second = order.at(range(100)), order.at(range(100, 200))
    assert first != second
    assert first != other.at(range(100))


@pytest.mark.parametrize(("split", "same"), [("Disjoint", True), ("Overlap", False)])
def test_peers_share_an_order_only_if_disjoint(split, same):
    a = SequenceOrder(100, seed=0, split=split, peer="uni-a.0").at(range(100))
    b = SequenceOrder(100, seed=0, split=split, peer="uni-b.0").at(range(100))
    assert (a == b) is same


def test_overlapping_peers_cover_what_chance_says():
    """Four peers that each read a quarter cover 1 - 0.75^4 = 68.4 % together; disjoint ones all."""
    num = 20_000
    quarter = num // 4

    def covered(split):
        seen: set[int] = set()
        for index in range(4):
            order = SequenceOrder(num, seed=0, split=split, peer=f"uni-{index}.0")
            seen.update(order.at(range(index * quarter, (index + 1) * quarter)))
        return len(seen) / num

    assert covered("Disjoint") == 1.0
    assert covered("Overlap") == pytest.approx(0.6836, abs=0.01)


def test_sequences_run_on_through_documents_with_separators():
    documents = [Document(name=f"words/{i}", content=b"abcdefg") for i in range(5)]
    spec = data_spec(sequenceTokens=8, heldOutFraction=0)
    corpus = build_corpus(documents, spec, source="test")
    assert corpus.train.tolist() == [[*b"abcdefg", 0]] * 5


def test_held_out_text_is_not_trained():
    documents = [Document(name=f"words/{i:02d}", content=bytes([i] * 15)) for i in range(1, 60)]
    spec = data_spec(heldOutFraction=0.2)
    corpus = build_corpus(documents, spec, source="test")
    trained, kept = set(np.unique(corpus.train)), set(np.unique(corpus.held_out))
    assert trained & kept == {0}


def test_unigram_loss_is_the_entropy_of_the_held_out_bytes():
    documents = [Document(name=f"words/{i}", content=b"\0\1" * 8 + b"\1") for i in range(20)]
    corpus = build_corpus(documents, data_spec(heldOutFraction=0.5), source="test")
    assert corpus.unigram_loss == pytest.approx(np.log(2), abs=1e-6)


def test_fingerprint_follows_the_content():
    documents = [Document(name=f"words/{i}", content=b"x" * 40) for i in range(9)]
    changed = [*documents[:-1], Document(name="words/8", content=b"x" * 39 + b"y")]
    one, same, other = (
        build_corpus(d, data_spec(), source="test").fingerprint
        for d in (documents, list(documents), changed)
    )
    assert one == same != other


def test_evaluation_is_spread_over_the_held_out_text():
    documents = [Document(name=f"words/{i:02d}", content=bytes([i] * 15)) for i in range(1, 60)]
    corpus = build_corpus(documents, data_spec(heldOutFraction=0.5), source="test")
    some = corpus.evaluation(10 * 16)
    assert len(some) == 10
    assert some[0].tolist() == corpus.held_out[0].tolist()
    assert some[-1].tolist() == corpus.held_out[len(corpus.held_out) * 9 // 10].tolist()
    assert len(corpus.evaluation(10**9)) == len(corpus.held_out)
