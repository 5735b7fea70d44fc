"""Documents out of text files, JSON lines and parquet rows, and what is wrong with broken ones."""

from __future__ import annotations

import gzip
import importlib
import json
import sys

import pytest
from builders.datasets import data_spec, words, write_json_lines, write_texts
from hypothesis import given
from hypothesis import strategies as st
from spes_trainer.data.documents import BLOCK_BYTES, Document, read_documents
from spes_trainer.data.sources import find_sources
from spes_trainer.errors import ConfigError


def read(data_root, **changes) -> dict[str, bytes]:
    """Names and contents of all documents, in order."""
    spec = data_spec(**changes)
    return {
        document.name: b"".join(document.pieces())
        for source in find_sources(spec, data_root=data_root)
        for document in read_documents(source)
    }


def test_a_text_file_is_one_document(tmp_path):
    write_texts(tmp_path / "words", {"b": b"\xff\0", "a": b"", "c": b"x" * (BLOCK_BYTES + 1)})
    assert read(tmp_path) == {
        "words/a": b"",
        "words/b": b"\xff\0",
        "words/c": b"x" * (BLOCK_BYTES + 1),
    }


@pytest.mark.parametrize("end", ["jsonl", "jsonl.gz"])
def test_a_line_is_a_document_under_its_number(tmp_path, end):
    path = write_json_lines(tmp_path / "words" / f"a.{end}", ["eins", "zwei\nÄ"])
    assert path.exists()
    assert read(tmp_path) == {
        f"words/a.{end}:1": b"eins",
        f"words/a.{end}:2": "zwei\nÄ".encode(),
    }


def test_empty_lines_are_no_documents(tmp_path):
    path = write_json_lines(tmp_path / "words" / "a.jsonl", ["eins"])
    path.write_bytes(b"\n  \n" + path.read_bytes() + b"\n")
    assert read(tmp_path) == {"words/a.jsonl:3": b"eins"}


def test_the_text_may_lie_in_another_field(tmp_path):
    write_json_lines(tmp_path / "words" / "a.jsonl", ["eins"], key="content")
    sources = [{"dataset": {"name": "words", "textField": "content"}}]
    assert read(tmp_path, sources=sources) == {"words/a.jsonl:1": b"eins"}


@pytest.mark.parametrize(
    ("line", "got"),
    [
        (b'{"text": "a"', "Expecting"),
        (b'{"body": "a", "id": 1}', r"got keys body, id"),
        (b'{"text": null}', r"got text: null"),
        (b'["text"]', r"got a list"),
        (b'{"text": "\\ud800"}', "surrogates not allowed"),
        (b'{"text": "\xff"}', "can't decode byte 0xff"),
        (b"[" * 100_000, "recursion|nested|depth|Expecting"),
    ],
    ids=["cut", "no field", "null", "no object", "surrogate", "no utf-8", "nested"],
)
def test_a_broken_line_is_named(tmp_path, line, got):
    path = write_json_lines(tmp_path / "words" / "a.jsonl", words(2))
    path.write_bytes(path.read_bytes() + line + b"\n" + path.read_bytes())
    expected = rf"a\.jsonl:3: data.sources\[0\].dataset must be a JSON object with text .*{got}"
    with pytest.raises(ConfigError, match=expected) as raised:
        read(tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("damage", ["cut", "not compressed", "changed"])
def test_a_broken_gzip_file_is_named(tmp_path, damage):
    path = write_json_lines(tmp_path / "words" / "a.jsonl.gz", words(2000))
    content = path.read_bytes()
    half = len(content) // 2
    if damage == "cut":
        path.write_bytes(content[:half])
    elif damage == "changed":
        path.write_bytes(content[:half] + bytes(8) + content[half + 8 :])
    else:
        path.write_bytes(gzip.decompress(content))
    with pytest.raises(ConfigError, match=r"a\.jsonl\.gz(:\d+)?: data\.sources"):
        read(tmp_path)


def test_a_line_that_is_too_long_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("spes_trainer.data.documents.MAX_LINE_BYTES", 100)
    write_json_lines(tmp_path / "words" / "a.jsonl", ["short", "x" * 100])
    with pytest.raises(ConfigError, match=r"a\.jsonl:2: .* lines of at most 100 bytes"):
        read(tmp_path)


blocks = st.lists(st.text("aé☃\n", max_size=9).map(str.encode), max_size=6)


@given(blocks=blocks, size=st.integers(4, 12))
def test_pieces_are_the_content_cut_between_characters(blocks, size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spes_trainer.data.documents.BLOCK_BYTES", size)
        pieces = list(Document(name="a", blocks=blocks).pieces())
    assert b"".join(pieces) == b"".join(blocks)
    assert all(len(piece) <= size for piece in pieces)
    assert all(piece.decode() is not None for piece in pieces)


def test_long_text_is_cut_at_the_end_of_a_line():
    line, lines_of_a_block = b"x" * 999 + b"\n", BLOCK_BYTES // 1000
    first, second = Document(name="a", blocks=[line * (lines_of_a_block + 9)]).pieces()
    assert first == line * lines_of_a_block
    assert second == line * 9


# Parquet.


@pytest.fixture
def parquet(tmp_path):
    """Writes a parquet file from its columns."""
    arrow = pytest.importorskip("pyarrow")
    write_table = importlib.import_module("pyarrow.parquet").write_table

    def write(columns, **options) -> None:
        (tmp_path / "words").mkdir(exist_ok=True)
        write_table(arrow.table(columns), tmp_path / "words" / "a.parquet", **options)

    return write


def test_a_parquet_row_is_a_document_under_its_number(tmp_path, parquet):
    parquet({"id": list(range(1000)), "text": words(1000)}, row_group_size=300)
    found = read(tmp_path)
    assert list(found) == [f"words/a.parquet:{row}" for row in range(1, 1001)]
    assert list(found.values()) == [text.encode() for text in words(1000)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"body": ["a"], "id": [1]}, r"with the column 'text' \(got columns body, id\)"),
        ({"text": [1, 2]}, r"text in the column 'text' \(got int64\)"),
        ({"text": ["a", None]}, r"row 2: .*\(got null\)"),
    ],
    ids=["no column", "numbers", "null"],
)
def test_a_parquet_file_without_text_is_named(tmp_path, parquet, columns, message):
    parquet(columns)
    with pytest.raises(ConfigError, match=rf"a\.parquet.*{message}"):
        read(tmp_path)


@pytest.mark.parametrize("damage", ["no parquet", "cut", "changed"])
def test_a_broken_parquet_file_is_named(tmp_path, parquet, damage):
    parquet({"text": words(500)})
    path = tmp_path / "words" / "a.parquet"
    content = path.read_bytes()
    if damage == "no parquet":
        path.write_bytes(json.dumps({"text": "a"}).encode())
    elif damage == "cut":
        path.write_bytes(content[:-20])
    else:
        path.write_bytes(content[:4] + bytes(200) + content[204:])
    with pytest.raises(ConfigError, match=r"a\.parquet: .* a whole parquet file") as raised:
        read(tmp_path)
    assert "\n" not in str(raised.value)


def test_the_missing_extra_is_named_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    write_texts(tmp_path / "words", {"a.parquet": b"PAR1"})
    with pytest.raises(ConfigError, match=r"no package pyarrow here\); install spes\[data\]"):
        read(tmp_path)
