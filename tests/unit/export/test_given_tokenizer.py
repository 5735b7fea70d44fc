"""A job's own tokenizer in an export: the same bytes, fitting the model, or left out."""

import json
import logging

import pytest
from builders.datasets import END_OF_TEXT, write_tokenizer
from builders.exported_models import WHOLE, export_settings, random_weights, write_model
from spes_api.job import TokenizerSpec
from spes_sync.errors import ExportError
from spes_sync.export import export_model
from spes_sync.export.tokenizer import given_tokenizer

SPEC = TokenizerSpec(path="tokenizer.json")


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    return write_tokenizer(tmp_path_factory.mktemp("t") / "tokenizer.json").read_bytes()


def export(tmp_path, content, *, vocabulary=320):
    config = WHOLE.model_copy(update={"vocabulary": vocabulary})
    model = write_model(tmp_path / "model.safetensors", random_weights(config))
    file = tmp_path / "tokenizer.json"
    if content is not None:
        file.write_bytes(content)
    settings = export_settings(config, tokenizer=SPEC, file=file)
    return export_model(model, settings, tmp_path / "exported").folder


def test_the_file_is_exported_unchanged_with_its_end(tmp_path, content):
    folder = export(tmp_path, content)
    assert (folder / "tokenizer.json").read_bytes() == content
    said = json.loads((folder / "tokenizer_config.json").read_text())
    assert said["eos_token"] == END_OF_TEXT
    for name in ("config.json", "generation_config.json"):
        assert json.loads((folder / name).read_text())["eos_token_id"] == 0


def test_without_the_file_the_model_is_exported_and_said_so(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        folder = export(tmp_path, None)
    assert not (folder / "tokenizer.json").exists()
    assert (folder / "model.safetensors").exists()
    assert "exporting without a tokenizer" in caplog.text


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (b"{}", "not a readable tokenizer.json"),
        (b"[" * 100_000, "not a readable tokenizer.json"),
        (b"\xff", "not a readable tokenizer.json"),
        (b'{"added_tokens": [], "model": {"vocab": {}}}', r"no special token .*\(got none\)"),
    ],
    ids=["empty", "nested", "no text", "no end"],
)
def test_a_broken_tokenizer_is_refused(broken, message):
    with pytest.raises(ExportError, match=message):
        given_tokenizer(broken, end_token=END_OF_TEXT, vocabulary=320)


def test_more_tokens_than_embeddings_are_refused(tmp_path, content):
    with pytest.raises(ExportError, match=r"vocabulary must be at least \d+ .*\(got 270\)"):
        export(tmp_path, content, vocabulary=270)
    assert not (tmp_path / "exported").exists()


def test_vocabularies_in_lists_are_counted():
    """As Unigram models have them."""
    plain = {
        "added_tokens": [{"id": 2, "content": END_OF_TEXT}],
        "model": {"vocab": [["a", -1.0], ["b", -2.0], [END_OF_TEXT, 0.0]]},
    }
    found = given_tokenizer(json.dumps(plain).encode(), end_token=END_OF_TEXT, vocabulary=3)
    assert found.end_id == 2
