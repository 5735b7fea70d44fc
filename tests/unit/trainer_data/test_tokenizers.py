"""Tokenizers: bytes, and a Hugging Face tokenizer.json with its traps switched off."""

from __future__ import annotations

import json
import sys

import pytest
from builders.datasets import (
    END_OF_TEXT,
    corpus_of,
    data_spec,
    words,
    write_json_lines,
    write_texts,
    write_tokenizer,
)
from builders.nano import NANO, nano_spec
from hypothesis import given
from hypothesis import strategies as st
from spes_api.job import SpesJobSpec, TokenizerSpec
from spes_sync.disk import Disk
from spes_trainer.data.order import Pick
from spes_trainer.data.reading import read_corpus
from spes_trainer.data.tokenizer import ByteTokenizer, open_tokenizer
from spes_trainer.errors import ConfigError

SPEC = TokenizerSpec(path="tokenizer.json")


@pytest.fixture(scope="module")
def tokenizer_path(tmp_path_factory):
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")


@pytest.fixture(scope="module")
def tokenizer(tokenizer_path):
    return open_tokenizer(SPEC, tokenizer_path)


def changed(tokenizer_path, target, **values):
    content = json.loads(tokenizer_path.read_text()) | values
    target.write_text(json.dumps(content))
    return target


def test_bytes_survive_the_byte_tokenizer():
    tokenizer, text = ByteTokenizer(), "naïve \N{SNOWMAN} text"
    (tokens,) = tokenizer.encode([text.encode()])
    assert tokenizer.decode(tokens.tolist()) == text
    assert tokenizer.decode([255, 104, 300]) == "\N{REPLACEMENT CHARACTER}h"


@given(text=st.text(max_size=40))
def test_text_survives_a_tokenizer(tokenizer, text):
    (tokens,) = tokenizer.encode([text.encode()])
    assert tokenizer.decode(tokens.tolist()) == text
    assert all(token < tokenizer.vocabulary for token in tokens)


def test_text_that_spells_the_end_does_not_end_a_document(tokenizer):
    (tokens,) = tokenizer.encode([f"a{END_OF_TEXT}b".encode()])
    assert tokenizer.end_of_text not in tokens
    assert tokenizer.decode(tokens.tolist()) == f"a{END_OF_TEXT}b"


def test_truncation_and_padding_of_the_file_are_ignored(tmp_path, tokenizer_path, tokenizer):
    path = changed(
        tokenizer_path,
        tmp_path / "t.json",
        truncation={"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        padding={
            "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None,
            "pad_id": 0, "pad_type_id": 0, "pad_token": END_OF_TEXT,
        },
    )  # fmt: skip
    text = [b"the quick brown fox", b"a"]
    cut, whole = open_tokenizer(SPEC, path).encode(text), tokenizer.encode(text)
    assert [one.tolist() for one in cut] == [one.tolist() for one in whole]


def test_the_vocabulary_counts_added_tokens(tmp_path, tokenizer_path, tokenizer):
    added = json.loads(tokenizer_path.read_text())["added_tokens"]
    far = added[0] | {"id": 999, "content": "<|far|>"}
    path = changed(tokenizer_path, tmp_path / "t.json", added_tokens=[*added, far])
    assert open_tokenizer(SPEC, path).vocabulary > tokenizer.vocabulary


def test_identity_follows_the_file_and_the_end(tmp_path, tokenizer_path, tokenizer):
    added = json.loads(tokenizer_path.read_text())["added_tokens"]
    more = added[0] | {"id": tokenizer.vocabulary, "content": "</s>"}
    path = changed(tokenizer_path, tmp_path / "t.json", added_tokens=[*added, more])
    other_end = TokenizerSpec(path="t.json", end_of_text="</s>")
    found = [open_tokenizer(SPEC, path), open_tokenizer(other_end, path), tokenizer]
    assert len({one.identity for one in found}) == 3
    assert open_tokenizer(SPEC, tokenizer_path).identity == tokenizer.identity


@pytest.mark.parametrize(
    ("content", "spec", "message"),
    [
        (b"{}", SPEC, r"a tokenizer.json \(got .*Model missing"),
        (b"\xff", SPEC, r"a tokenizer.json \(got "),
        (None, SPEC, r"a readable file \(got No such file"),
        (
            "same",
            TokenizerSpec(path="t.json", end_of_text="</s>"),
            r"a tokenizer with the special token '</s>' \(got <\|endoftext\|>\); "
            r"set data.tokenizer.endOfText",
        ),
    ],
    ids=["no model", "no json", "missing", "no end"],
)
def test_an_unusable_tokenizer_is_named(tmp_path, tokenizer_path, content, spec, message):
    path = tmp_path / "t.json"
    if content is not None:
        path.write_bytes(tokenizer_path.read_bytes() if content == "same" else content)
    with pytest.raises(ConfigError, match=rf"t\.json: data.tokenizer.path must be {message}"):
        open_tokenizer(spec, path)


def test_the_missing_package_is_named_in_one_line(tokenizer_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    message = r"no package tokenizers here\); install spes\[trainer\]"
    with pytest.raises(ConfigError, match=message) as raised:
        open_tokenizer(SPEC, tokenizer_path)
    assert "\n" not in str(raised.value)


def test_documents_end_with_the_end_of_text(tmp_path, tokenizer):
    write_json_lines(tmp_path / "data" / "words" / "a.jsonl", words(60))
    spec = data_spec(heldOutFraction=0, sequenceTokens=8, documentMask=True)
    corpus = corpus_of(tmp_path / "data", spec, tokenizer=tokenizer)
    picks = [Pick(0, index) for index in range(corpus.num_sequences)]
    text = [int(token) for token in corpus.take(picks).reshape(-1)]
    ends = [i for i, token in enumerate(text) if token == tokenizer.end_of_text]
    assert tokenizer.decode(text[: ends[0]]) == words(1)[0]
    assert tokenizer.decode(text[ends[0] + 1 : ends[1]]) == words(2)[1]
    assert corpus.document_end == tokenizer.end_of_text


def test_text_that_is_no_utf8_is_named(tmp_path, tokenizer):
    write_texts(tmp_path / "data" / "words", {"a.txt": b"fine", "b.txt": b"ok\xff"})
    message = r"words/b\.txt: .* must be UTF-8 text \(got invalid start byte at byte 2\)"
    with pytest.raises(ConfigError, match=message):
        corpus_of(tmp_path / "data", data_spec(), tokenizer=tokenizer)


def tokenized_job(vocabulary: int) -> SpesJobSpec:
    plain = nano_spec().model_dump(by_alias=True, exclude_none=True)
    plain["model"] = {"config": NANO.model_dump(by_alias=True) | {"vocabulary": vocabulary}}
    plain["data"]["tokenizer"] = {"path": "tokenizer.json"}
    return SpesJobSpec.model_validate(plain)


def test_a_job_reads_the_tokenizer_of_its_dataset_and_keeps_a_copy(tmp_path):
    write_json_lines(tmp_path / "data" / "words" / "a.jsonl", words(300))
    path = write_tokenizer(tmp_path / "data" / "words" / "tokenizer.json")
    spec, trainer = tokenized_job(300), tmp_path / "trainer"
    corpus = read_corpus(spec, data_root=tmp_path / "data", directory=trainer, disk=Disk())
    assert corpus.take([Pick(0, 0)]).dtype.name == "uint16"
    assert (trainer / "tokenizer.json").read_bytes() == path.read_bytes()


def test_a_model_with_too_few_embeddings_is_refused(tmp_path):
    write_json_lines(tmp_path / "data" / "words" / "a.jsonl", words(300))
    write_tokenizer(tmp_path / "data" / "words" / "tokenizer.json", vocabulary=290)
    message = r"model.config.vocabulary must be at least 2\d\d \(got 260\).*'tokenizer.json'"
    with pytest.raises(ConfigError, match=message):
        read_corpus(
            tokenized_job(260), data_root=tmp_path / "data", directory=tmp_path, disk=Disk()
        )
