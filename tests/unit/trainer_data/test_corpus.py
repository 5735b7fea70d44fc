"""The corpus: packing, both sides of the split, sources together."""

from __future__ import annotations

import numpy as np
import pytest
from builders.datasets import corpus_of, data_spec, write_json_lines, write_texts
from builders.nano import NANO, nano_spec, write_words
from hypothesis import given
from hypothesis import strategies as st
from spes_api.job import ModelSpec
from spes_sync.disk import Disk
from spes_trainer.data.order import Pick
from spes_trainer.data.reading import read_corpus
from spes_trainer.data.split import held_out, is_held_out
from spes_trainer.errors import ConfigError

names = st.lists(st.text("abc/.", min_size=1, max_size=12), min_size=2, max_size=40, unique=True)
TWO_SOURCES = [{"dataset": {"name": "words"}}, {"dataset": {"name": "more"}, "weight": 3}]


@pytest.fixture
def data_root(tmp_path):
    return tmp_path / "data"


def rows(corpus, source=0):
    """All training sequences of a source."""
    num = len(corpus.sources[source].train)
    return corpus.take([Pick(source, index) for index in range(num)]).tolist()


@given(names=names, fraction=st.floats(0.01, 0.9))
def test_both_sides_of_the_split_get_documents(names, fraction):
    kept = held_out(names, fraction)
    assert 1 <= len(kept) < len(names)
    assert kept == held_out(names[::-1], fraction)


def test_a_document_stays_on_its_side_when_others_come():
    names = [f"d{i}" for i in range(400)]
    few, many = held_out(names[:200], 0.1), held_out(names, 0.1)
    assert few == {name for name in many if name in names[:200]}
    assert many == {name for name in names if is_held_out(name, 0.1)}
    assert 0.05 < len(many) / 400 < 0.15


def test_sequences_run_on_through_documents_with_separators(data_root):
    write_texts(data_root / "words", {str(i): b"abcdefg" for i in range(5)})
    corpus = corpus_of(data_root, data_spec(sequenceTokens=8, heldOutFraction=0))
    assert rows(corpus) == [[*b"abcdefg", 0]] * 5


def test_a_sequence_may_span_documents_and_a_rest_is_left_out(data_root):
    write_texts(data_root / "words", {"0": b"abcde", "1": b"", "2": b"fghijklmnop"})
    corpus = corpus_of(data_root, data_spec(sequenceTokens=8, heldOutFraction=0))
    assert rows(corpus) == [[*b"abcde", 0, 0, *b"f"], [*b"ghijklmn"]]


@pytest.mark.parametrize("kind", ["text", "rows"])
def test_held_out_text_is_not_trained(data_root, kind):
    texts = [chr(i) * 15 for i in range(1, 60)]
    if kind == "text":
        contents = {f"{i:02d}": text.encode() for i, text in enumerate(texts)}
        write_texts(data_root / "words", contents)
    else:
        write_json_lines(data_root / "words" / "a.jsonl", texts)
    corpus = corpus_of(data_root, data_spec(heldOutFraction=0.2))
    trained, kept = set(np.unique(rows(corpus))), set(np.unique(corpus.evaluation(10**6)))
    assert trained & kept == {0}
    assert len(trained | kept) == 60
    assert 4 <= len(kept) <= 25


def test_unigram_loss_is_the_entropy_of_the_held_out_bytes(data_root):
    write_texts(data_root / "words", {str(i): b"\0\1" * 8 + b"\1" for i in range(20)})
    corpus = corpus_of(data_root, data_spec(heldOutFraction=0.5))
    assert corpus.unigram_loss == pytest.approx(np.log(2), abs=1e-6)


def test_fingerprint_follows_the_content_not_the_place(tmp_path):
    texts = {str(i): b"x" * 40 for i in range(9)}
    prints = []
    for number, last in enumerate([b"x" * 40, b"x" * 40, b"x" * 39 + b"y"]):
        root = tmp_path / str(number) / "data"
        write_texts(root / "words", texts | {"8": last})
        prints.append(corpus_of(root, data_spec()).fingerprint)
    assert prints[0] == prints[1] != prints[2]


def test_fingerprint_follows_what_decides_the_order(data_root):
    write_words(data_root)
    specs = [
        data_spec(),
        data_spec(sequenceTokens=32),
        data_spec(heldOutFraction=0.5),
        data_spec(sources=[{"dataset": {"name": "words"}, "weight": 2}]),
    ]
    assert len({corpus_of(data_root, spec).fingerprint for spec in specs}) == len(specs)


def test_evaluation_is_spread_over_the_held_out_text(data_root):
    texts = {f"{i:02d}": bytes([i] * 15) for i in range(1, 60)}
    write_texts(data_root / "words", texts)
    corpus = corpus_of(data_root, data_spec(heldOutFraction=0.5))
    every, some = corpus.evaluation(10**6), corpus.evaluation(10 * 16)
    assert len(every) == corpus.num_held_out_tokens // 16
    assert len(some) == 10
    assert some[0].tolist() == every[0].tolist()
    assert some[-1].tolist() == every[len(every) * 9 // 10].tolist()


def test_evaluation_weighs_sources_as_training_does(data_root):
    write_texts(data_root / "words", {f"{i:02d}": b"a" * 15 for i in range(60)})
    write_texts(data_root / "more", {f"{i:02d}": b"b" * 15 for i in range(60)})
    corpus = corpus_of(data_root, data_spec(sources=TWO_SOURCES, heldOutFraction=0.5))
    found = corpus.evaluation(8 * 16)
    assert [row[0] for row in found.tolist()].count(ord("b")) == 6
    assert len(found) == 8


def test_sources_keep_to_themselves(data_root):
    """No sequence holds text of two sources."""
    write_texts(data_root / "words", {"0": b"a" * 50})
    write_texts(data_root / "more", {"0": b"b" * 50})
    corpus = corpus_of(data_root, data_spec(sources=TWO_SOURCES, heldOutFraction=0))
    assert corpus.num_sequences == 6
    picks = corpus.order(seed=0, split="Disjoint", peer="").at(range(1024))
    drawn = {(pick.source, *row) for pick, row in zip(picks, corpus.take(picks), strict=True)}
    assert drawn == {(0, *b"a" * 16), (1, *b"b" * 16)}
    assert sum(pick.source for pick in picks) == 768


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sequenceTokens": 100_000}, r"data.sources\[0\].dataset must be at least one sequence"),
        ({"sequenceTokens": 1000, "heldOutFraction": 0.01}, r"data.heldOutFraction must be"),
    ],
    ids=["too short", "nothing held out"],
)
def test_too_little_text_is_named(data_root, changes, message):
    write_words(data_root)
    with pytest.raises(ConfigError, match=message) as raised:
        corpus_of(data_root, data_spec(**changes))
    assert "got" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_vocabulary_below_the_tokenizers_is_refused(tmp_path):
    small = ModelSpec(config=NANO.model_copy(update={"vocabulary": 100}))
    spec = nano_spec().model_copy(update={"model": small})
    with pytest.raises(ConfigError, match=r"model.config.vocabulary must be at least 256"):
        read_corpus(spec, data_root=tmp_path, directory=tmp_path, disk=Disk())


def test_local_data_may_differ_and_are_named_alike(tmp_path):
    """With split Local each member has its own data under the dataset's name."""
    corpora = []
    for member, text in (("a", "x"), ("b", "y")):
        root = tmp_path / member / "data"
        write_json_lines(root / "words" / "own.jsonl", [text * 30] * 40)
        corpora.append(corpus_of(root, data_spec(split="Local", heldOutFraction=0.3)))
    ours, theirs = ({*np.unique(rows(corpus))} for corpus in corpora)
    assert (ours, theirs) == ({0, ord("x")}, {0, ord("y")})
    assert corpora[0].num_held_out_tokens == corpora[1].num_held_out_tokens
