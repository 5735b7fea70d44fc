"""Huffman-coded chunks: what they save, when they are not worth it, and many damaged ones."""

from __future__ import annotations

import hashlib
import io
import threading
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spes_proto.v1 import sync_pb2
from spes_sync.entropy import Huffman, expanded
from spes_sync.errors import ProtocolError
from spes_sync.frames import MAX_CHUNK_BYTES, PayloadWriter, iter_chunks, iter_file_chunks

RANDOM = np.random.default_rng(0)
# Six symbols, as often as in the textbook: 2.24 bits each by their Huffman code.
COUNTS = (45, 13, 12, 16, 9, 5)
SKEWED = bytes(RANDOM.permutation(np.repeat(np.arange(6, dtype=np.uint8), COUNTS)))
NOISE = RANDOM.bytes(MAX_CHUNK_BYTES)


def raw_deflate(data: bytes) -> bytes:
    coder = zlib.compressobj(9, zlib.DEFLATED, -15)
    return coder.compress(data) + coder.flush()


def test_the_code_is_as_short_as_huffmans():
    many = bytes(RANDOM.permutation(np.tile(np.frombuffer(SKEWED, np.uint8), 10_000)))
    coded = Huffman().coded(many)
    assert coded is not None
    # The end of a block is a symbol too: the rarest of the six gives it half of its codes.
    assert 2.2199 <= 8 * len(coded) / len(many) <= 2.24 + 0.05 + 0.01
    assert expanded(coded, len(many)) == many


@given(data=st.binary(min_size=1, max_size=5000), times=st.integers(1, 50))
def test_what_is_coded_expands_to_itself(data, times):
    coded = Huffman().coded(data * times)
    assert coded is None or (
        len(coded) <= 0.95 * len(data * times)
        and expanded(coded, len(data * times)) == data * times
    )


def test_what_saves_little_goes_as_it_is_and_so_do_the_next():
    coder = Huffman()
    assert coder.coded(NOISE) is None
    tried = [coder.coded(SKEWED * 50) is not None for _ in range(16)]
    assert tried == [False] * 15 + [True]
    assert coder.saved_bytes > 0


def test_a_coded_payload_arrives_whole_and_can_be_resumed(tmp_path):
    payload = SKEWED * 20_000 + NOISE + SKEWED * 20_000
    path = tmp_path / "payload"
    path.write_bytes(payload)
    file, digest = io.BytesIO(), hashlib.sha256()
    writer = PayloadWriter(file, len(payload), digest)
    first = iter_chunks(sync_pb2.PushPart, [payload], coder=Huffman())
    writer.write(next(first).chunk)
    offset = writer.received
    rest = iter_file_chunks(sync_pb2.PushPart, path, offset=offset, coder=Huffman())
    for part in rest:
        writer.write(part.chunk)
    writer.finish(sync_pb2.End(sha256=hashlib.sha256(payload).hexdigest()))
    assert file.getvalue() == payload
    assert writer.received_coded < 0.8 * writer.received


@given(sizes=st.lists(st.tuples(st.booleans(), st.integers(1, 300)), max_size=40))
def test_coding_ahead_keeps_the_order_and_every_byte(sizes):
    chunks = [SKEWED * (size // 50 + 1) if skewed else NOISE[:size] for skewed, size in sizes]
    got = list(Huffman().coded_ahead(iter(chunks)))
    assert [data for data, _ in got] == chunks
    for data, coded in got:
        assert coded is None or expanded(coded, len(data)) == data


def test_what_is_all_skewed_is_coded_ahead_as_it_is_one_by_one():
    chunks, one_by_one, ahead = [SKEWED * n for n in range(1, 20)], Huffman(), Huffman()
    expected = [(chunk, one_by_one.coded(chunk)) for chunk in chunks]
    assert list(ahead.coded_ahead(iter(chunks))) == expected
    assert ahead.saved_bytes == one_by_one.saved_bytes > 0


def test_a_sender_that_stops_leaves_no_thread():
    sender = Huffman().coded_ahead(iter([SKEWED * 100] * 20))
    next(sender)
    sender.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("spes-huffman")]


def test_a_bomb_costs_no_more_than_its_chunk_may_hold():
    bomb = raw_deflate(bytes(64 << 20))
    chunk = sync_pb2.Chunk(data=bomb, crc32=zlib.crc32(bomb), expands_to=MAX_CHUNK_BYTES)
    writer = PayloadWriter(io.BytesIO(), 1 << 40, hashlib.sha256())
    tracemalloc.start()
    with pytest.raises(ProtocolError, match="it ends elsewhere") as caught:
        writer.write(chunk)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.reason == sync_pb2.BAD_CHECKSUM
    assert peak < 4 * MAX_CHUNK_BYTES


def test_a_chunk_that_would_expand_beyond_its_limit_is_refused_unread():
    data = raw_deflate(bytes(MAX_CHUNK_BYTES + 1))
    chunk = sync_pb2.Chunk(data=data, crc32=zlib.crc32(data), expands_to=MAX_CHUNK_BYTES + 1)
    with pytest.raises(ProtocolError) as caught:
        PayloadWriter(io.BytesIO(), 1 << 40, hashlib.sha256()).write(chunk)
    assert caught.value.reason == sync_pb2.TOO_LARGE


# Three coded chunks and a plain one.
PIECES = (SKEWED * 4, SKEWED[::-1] * 4, SKEWED * 3, NOISE[:300])
PAYLOAD = b"".join(PIECES)


def stream() -> list[sync_pb2.Chunk]:
    chunks, offset = [], 0
    for piece in PIECES:
        coded = Huffman().coded(piece)
        data = piece if coded is None else coded
        chunks.append(
            sync_pb2.Chunk(
                offset=offset,
                data=data,
                crc32=zlib.crc32(data),
                expands_to=0 if coded is None else len(piece),
            )
        )
        offset += len(piece)
    return chunks


def receive(chunks: list[sync_pb2.Chunk]) -> bytes:
    file = io.BytesIO()
    writer = PayloadWriter(file, len(PAYLOAD), hashlib.sha256())
    for chunk in chunks:
        writer.write(chunk)
    writer.finish(sync_pb2.End(sha256=hashlib.sha256(PAYLOAD).hexdigest()))
    return file.getvalue()


INTACT = stream()


def flip(chunks: list[sync_pb2.Chunk], at: int, draw: st.DrawFn) -> None:
    data = bytearray(chunks[at].data or b"0")
    data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    chunks[at].data = bytes(data)


def cut(chunks: list[sync_pb2.Chunk], at: int, draw: st.DrawFn) -> None:
    chunks[at].data = chunks[at].data[: draw(st.integers(0, len(chunks[at].data)))]


def grow(chunks: list[sync_pb2.Chunk], at: int, draw: st.DrawFn) -> None:
    chunks[at].data += draw(st.binary(min_size=1, max_size=20))


def lie(chunks: list[sync_pb2.Chunk], at: int, draw: st.DrawFn) -> None:
    field = draw(st.sampled_from(["offset", "crc32", "expands_to"]))
    numbers = st.one_of(st.integers(0, 3000), st.integers(0, 2**32 - 1))
    setattr(chunks[at], field, draw(numbers))


def repeat(chunks: list[sync_pb2.Chunk], at: int, _: st.DrawFn) -> None:
    chunks.insert(at, chunks[at])


def swap(chunks: list[sync_pb2.Chunk], at: int, _: st.DrawFn) -> None:
    chunks[at], chunks[-1] = chunks[-1], chunks[at]


def drop(chunks: list[sync_pb2.Chunk], at: int, _: st.DrawFn) -> None:
    if len(chunks) > 1:
        del chunks[at]


@st.composite
def damaged_streams(draw: st.DrawFn) -> list[sync_pb2.Chunk]:
    chunks = [sync_pb2.Chunk.FromString(chunk.SerializeToString()) for chunk in INTACT]
    for _ in range(draw(st.integers(1, 3))):
        damage = draw(st.sampled_from([flip, cut, grow, lie, repeat, swap, drop]))
        damage(chunks, draw(st.integers(0, len(chunks) - 1)), draw)
    if draw(st.booleans()):  # by somebody who knows how to count
        for chunk in chunks:
            chunk.crc32 = zlib.crc32(chunk.data)
    return chunks


def test_an_intact_stream_arrives():
    assert receive(INTACT) == PAYLOAD


@settings(max_examples=1000)
@given(chunks=damaged_streams())
def test_a_damaged_stream_is_refused_by_name_or_was_not_damaged(chunks):
    refusal = ""
    try:
        assert receive(chunks) == PAYLOAD
    except ProtocolError as error:
        refusal = error.reason_name
    assert refusal in ("", "TRUNCATED", "TOO_LARGE", "BAD_CHECKSUM")
