"""Sampling reads the tokenizer that lies beside the model."""

from __future__ import annotations

import threading

import pytest
from builders.datasets import words, write_json_lines, write_tokenizer
from builders.nano import NANO, nano_spec, write_words
from spes_api.job import SpesJobSpec
from spes_trainer.errors import ConfigError
from spes_trainer.generate import Request, generate, load_author
from spes_trainer.train import AloneOptions, train_alone


class Quiet:
    """Shows nothing."""

    def step(self, **_):
        pass

    def say(self, text):
        pass


def trained(tmp_path, spec):
    options = AloneOptions(directory=tmp_path / "trainer", data_root=tmp_path / "data")
    train_alone(spec, options, display=Quiet(), stop=threading.Event())
    return tmp_path / "trainer"


def tokenized(tmp_path):
    write_json_lines(tmp_path / "data" / "words" / "a.jsonl", words(300))
    write_tokenizer(tmp_path / "data" / "words" / "tokenizer.json")
    plain = nano_spec(maxTokens=128).model_dump(by_alias=True, exclude_none=True)
    plain["model"] = {"config": NANO.model_dump(by_alias=True) | {"vocabulary": 300}}
    plain["data"]["tokenizer"] = {"path": "tokenizer.json"}
    return SpesJobSpec.model_validate(plain)


@pytest.mark.parametrize("kind", ["bytes", "tokenizer"])
def test_the_same_seed_gives_the_same_text_behind_the_prompt(tmp_path, kind):
    if kind == "bytes":
        write_words(tmp_path / "data")
    spec = nano_spec(maxTokens=128) if kind == "bytes" else tokenized(tmp_path)
    author = load_author(trained(tmp_path, spec))
    request = Request(prompt="the quick", num_tokens=9, seed=3)
    text = generate(author, request)
    assert text.startswith("the quick")
    assert text == generate(author, request)
    assert text != generate(author, Request(prompt="the quick", num_tokens=9, seed=4))


def test_a_lost_tokenizer_is_named(tmp_path):
    directory = trained(tmp_path, tokenized(tmp_path))
    (directory / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"trainer/tokenizer\.json: .* a readable file"):
        load_author(directory)
