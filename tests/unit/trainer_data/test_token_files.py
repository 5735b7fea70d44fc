"""Token files: what they are, and that they are trained on where they lie."""

from __future__ import annotations

import json

import numpy as np
import pytest
from builders.datasets import corpus_of, data_spec, make_preparation, write_tokens
from hypothesis import given
from hypothesis import strategies as st
from spes_sync.disk import Disk
from spes_trainer.data import token_stream
from spes_trainer.data.order import Pick
from spes_trainer.data.prepare import key_of
from spes_trainer.data.scan import scan_token_files
from spes_trainer.data.sources import find_sources
from spes_trainer.data.split import is_held_out
from spes_trainer.data.token_file import (
    TokenFileWriter,
    description_path,
    narrowest,
    open_token_file,
)
from spes_trainer.data.token_stream import TokenStream
from spes_trainer.data.tokenizer import ByteTokenizer
from spes_trainer.errors import ConfigError

documents = st.lists(st.lists(st.integers(1, 255), max_size=9), max_size=30)


@pytest.mark.parametrize(
    ("vocabulary", "dtype"),
    [(256, "uint8"), (257, "uint16"), (1 << 16, "uint16"), (151_665, "uint32")],
)
def test_the_narrowest_type_is_chosen(vocabulary, dtype):
    assert narrowest(vocabulary).name == dtype


def test_what_was_written_is_mapped_again(tmp_path):
    path, ids = tmp_path / "a.bin", np.arange(70_000, dtype=np.uint32)
    with TokenFileWriter(path, dtype=np.dtype("<u4"), end_of_document=9, disk=Disk()) as writer:
        writer.write(ids[:7])
        writer.write(ids[7:])
        writer.close()
    tokens, end = open_token_file(path, field="data")
    assert isinstance(tokens, np.memmap)
    assert tokens.tolist() == ids.tolist()
    assert end == 9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "int16"}, r"a\.bin\.json: .*dtype: Input should be 'uint8'"),
        ({"endOfDocument": -1}, r"a\.bin\.json: .*endOfDocument"),
        ({"numTokens": 4}, r"a\.bin: .* must be 4 tokens of uint16 \(got 3\)"),
        ({"dtype": "uint32"}, r"a\.bin: .* whole tokens of uint32 \(got 1 and 2 more bytes\)"),
        (None, r"a\.bin\.json: .* a JSON file that describes a\.bin \(got No such file"),
        ("{", r"a\.bin\.json: .*Invalid JSON"),
    ],
    ids=["type", "end", "truncated", "torn", "no description", "no json"],
)
def test_a_file_that_is_not_what_it_says_is_named(tmp_path, change, message):
    path = write_tokens(tmp_path / "a.bin", [[1, 2]])
    beside = description_path(path)
    if change is None:
        beside.unlink()
    elif isinstance(change, str):
        beside.write_text(change)
    else:
        beside.write_text(json.dumps(json.loads(beside.read_text()) | change))
    with pytest.raises(ConfigError, match=message) as raised:
        open_token_file(path, field="data.sources[0].dataset")
    assert "\n" not in str(raised.value)


@given(documents=documents, block=st.integers(1, 40), fraction=st.sampled_from([0.0, 0.3, 0.9]))
def test_every_document_is_on_the_side_of_its_name(tmp_path_factory, documents, block, fraction):
    root = tmp_path_factory.mktemp("data")
    write_tokens(root / "words" / "a.bin", documents, dtype="uint8")
    (source,) = find_sources(data_spec(), data_root=root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spes_trainer.data.scan.BLOCK_TOKENS", block)
        (tokens,), ranges, _ = scan_token_files(source, ByteTokenizer(), held_out_fraction=fraction)
    for side in (0, 1):
        found = [t for _, start, stop, s in ranges if s == side for t in tokens[start:stop]]
        wanted = [
            token
            for number, document in enumerate(documents)
            if is_held_out(f"words/a.bin:{number}", fraction) == bool(side)
            for token in (*document, 0)
        ]
        assert found == wanted


ranges = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(0, 30)).map(
        lambda row: (row[0], min(row[1:]), max(row[1:]))
    ),
    max_size=12,
)


@given(ranges=ranges, length=st.integers(1, 9))
def test_sequences_run_on_through_ranges_of_several_files(ranges, length):
    files = (np.arange(30, dtype=np.uint8), np.arange(100, 130, dtype=np.uint16))
    rows = np.array([r for r in ranges if r[1] < r[2]], dtype=np.int64).reshape(-1, 3)
    stream = TokenStream(files, rows, sequence_tokens=length)
    whole = [int(t) for file, start, stop in rows for t in files[file][start:stop]]
    assert stream.num_tokens == len(whole)
    for index in range(len(stream)):
        out = np.empty(length, dtype=stream.dtype)
        stream.sequence(index, out)
        assert out.tolist() == whole[index * length : (index + 1) * length]
    counts = token_stream.count_tokens(files, rows, vocabulary=130)
    assert counts.tolist() == np.bincount(whole, minlength=130).tolist()


def test_token_files_are_used_in_place(tmp_path):
    """Nothing but the borders of the split is written down; a copy would take as much again."""
    path = write_tokens(tmp_path / "data" / "words" / "a.bin", [[7] * 15] * 4000)
    corpus = corpus_of(tmp_path / "data", data_spec())
    files = [file for file in (tmp_path / "prepared").rglob("*") if file.is_file()]
    assert {file.name for file in files} == {"ranges.npy", "counts.npy", "prepared.json"}
    assert sum(file.stat().st_size for file in files) < path.stat().st_size / 4
    assert corpus.num_sequences + corpus.num_held_out_tokens // 16 == 4000
    assert corpus.take([Pick(0, 5)]).tolist() == [[7] * 15 + [0]]


@pytest.mark.parametrize(
    ("documents", "end", "message"),
    [
        ([[1, 300]], 0, r"ids below 256, the vocabulary of data.tokenizer \(got id 300\)"),
        ([[1, 3]], 2, r"endOfDocument 0, as data.tokenizer ends a text \(got endOfDocument 2\)"),
    ],
    ids=["vocabulary", "end"],
)
def test_ids_of_another_tokenizer_are_refused(tmp_path, documents, end, message):
    write_tokens(tmp_path / "data" / "words" / "a.bin", documents, end=end)
    with pytest.raises(ConfigError, match=rf"a\.bin: data.sources\[0\].dataset must be {message}"):
        corpus_of(tmp_path / "data", data_spec())


def test_a_file_cut_after_it_was_prepared_is_seen(tmp_path):
    path = write_tokens(tmp_path / "data" / "words" / "a.bin", [[7] * 15] * 400)
    before = corpus_of(tmp_path / "data", data_spec())
    path.write_bytes(path.read_bytes()[: 200 * 16 * 2])
    after = corpus_of(tmp_path / "data", data_spec())
    assert after.num_sequences < before.num_sequences
    (source,) = find_sources(data_spec(), data_root=tmp_path / "data")
    preparation = make_preparation(tmp_path / "prepared")
    assert [p.name for p in (tmp_path / "prepared").iterdir()] == [key_of(source, preparation)]
