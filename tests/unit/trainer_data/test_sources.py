"""Which files a job reads, under which names, of which kind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from builders.datasets import data_spec, words, write_json_lines, write_texts, write_tokens
from builders.nano import write_words
from spes_trainer.data.sources import Kind, find_sources, kind_of
from spes_trainer.errors import ConfigError


def names_of(spec, data_root) -> list[str]:
    return [f.name for s in find_sources(spec, data_root=data_root) for f in s.files]


def test_files_come_in_the_order_of_their_names(tmp_path):
    write_texts(tmp_path / "words" / "b", {"z.txt": b"z"})
    write_texts(tmp_path / "words", {"c.txt": b"c", "a.txt": b"a"})
    assert names_of(data_spec(), tmp_path) == ["words/a.txt", "words/b/z.txt", "words/c.txt"]


def test_a_name_may_be_of_any_bytes(tmp_path):
    write_texts(tmp_path / "words", {os.fsdecode(b"caf\xe9"): b"text"})
    assert names_of(data_spec(), tmp_path) == [r"words/caf\xe9"]


def test_include_filters_file_names(tmp_path):
    write_words(tmp_path)
    (tmp_path / "words" / "notes.md").write_text("no")
    assert names_of(data_spec(include="[01].txt"), tmp_path) == ["words/0.txt", "words/1.txt"]


def test_a_dataset_path_may_be_one_file(tmp_path):
    write_words(tmp_path)
    spec = data_spec(sources=[{"dataset": {"name": "words", "path": "3.txt"}}])
    assert names_of(spec, tmp_path) == ["words/3.txt"]


def test_the_standard_library_is_there_without_its_tests():
    spec = data_spec(sources=[{"builtin": "python-stdlib"}], include="*.py")
    names = names_of(spec, Path("/nowhere"))
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
        (
            data_spec(tokenizer={"path": "missing.json"}),
            r"data.tokenizer must be an existing file",
        ),
    ],
    ids=["missing", "nothing matches", "outside", "no tokenizer"],
)
def test_unusable_sources_are_named(tmp_path, spec, message):
    root = tmp_path / "nowhere" if "nowhere" in message else write_words(tmp_path)
    if root != tmp_path / "nowhere":
        (root / "words" / "link").symlink_to(tmp_path.parent)
    with pytest.raises(ConfigError, match=message) as raised:
        find_sources(spec, data_root=root)
    assert "got" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_data_lists_what_is_there(tmp_path):
    (tmp_path / "wrods").mkdir()
    with pytest.raises(ConfigError, match=r"holds wrods"):
        find_sources(data_spec(), data_root=tmp_path)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.txt", Kind.TEXT),
        ("jsonl", Kind.TEXT),
        ("a.jsonl", Kind.JSON_LINES),
        ("a.jsonl.gz", Kind.JSON_LINES),
        ("a.gz", Kind.TEXT),
        ("a.parquet", Kind.PARQUET),
        ("a.bin", Kind.TOKENS),
    ],
)
def test_the_kind_follows_the_name(name, kind):
    assert kind_of(name) is kind


def test_a_mixture_of_kinds_is_refused(tmp_path):
    write_words(tmp_path, num_files=3)
    write_json_lines(tmp_path / "words" / "a.jsonl", words(2))
    message = r"must be files of one kind \(got 3 text and 1 JSON lines\); narrow data.include"
    with pytest.raises(ConfigError, match=message):
        find_sources(data_spec(), data_root=tmp_path)


def test_descriptions_of_token_files_are_no_documents(tmp_path):
    write_tokens(tmp_path / "words" / "a.bin", [[1, 2]])
    write_tokens(tmp_path / "words" / "b.bin", [[1, 2]])
    (source,) = find_sources(data_spec(), data_root=tmp_path)
    assert source.kind is Kind.TOKENS
    assert [file.name for file in source.files] == ["words/a.bin", "words/b.bin"]


def test_the_tokenizer_is_no_document(tmp_path):
    write_words(tmp_path, num_files=1)
    (tmp_path / "words" / "tokenizer.json").write_text("{}")
    assert names_of(data_spec(tokenizer={"path": "tokenizer.json"}), tmp_path) == ["words/0.txt"]
