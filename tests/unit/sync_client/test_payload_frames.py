"""Tensors, chunks, bytes: what both sides agree on before anything is trusted."""

from __future__ import annotations

import errno
import hashlib
import io
import zlib

import numpy as np
import pytest
from builders.toy_learner import toy_manifest
from hypothesis import given
from hypothesis import strategies as st
from spes_proto.v1 import sync_pb2
from spes_sync import codec
from spes_sync.errors import DiskFullError, ProtocolError
from spes_sync.frames import MAX_CHUNK_BYTES, PayloadWriter, iter_chunks, iter_file_chunks
from spes_sync.manifest import MAX_MODEL_BYTES, Manifest, TensorSpec, expert_of

PAYLOAD = bytes(range(256)) * 9000  # 2.2 MiB: three chunks


def chunk(offset: int, data: bytes) -> sync_pb2.Chunk:
    return sync_pb2.Chunk(offset=offset, data=data, crc32=zlib.crc32(data))


def reason_of(error: pytest.ExceptionInfo[ProtocolError]) -> str:
    return error.value.reason_name


@given(sizes=st.lists(st.integers(0, 2 * MAX_CHUNK_BYTES), max_size=4), data=st.data())
def test_chunks_rebuild_any_payload_from_any_offset(sizes, data):
    pieces = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
    whole = b"".join(pieces)
    offset = data.draw(st.integers(0, len(whole)))
    parts = iter_chunks(sync_pb2.PullPart, pieces, offset=offset)
    chunks = [part.chunk for part in parts]
    assert b"".join(c.data for c in chunks) == whole[offset:]
    assert [c.offset for c in chunks] == list(range(offset, len(whole), MAX_CHUNK_BYTES))


def test_a_file_is_cut_like_a_buffer(tmp_path):
    path = tmp_path / "payload"
    path.write_bytes(PAYLOAD)
    part = sync_pb2.PushPart
    cut = list(iter_file_chunks(part, path, offset=7))
    assert cut == list(iter_chunks(part, [PAYLOAD], offset=7))


def test_a_whole_payload_is_accepted():
    file = io.BytesIO()
    writer = PayloadWriter(file, len(PAYLOAD), hashlib.sha256())
    for part in iter_chunks(sync_pb2.PushPart, [PAYLOAD]):
        writer.write(part.chunk)
    writer.finish(sync_pb2.End(sha256=hashlib.sha256(PAYLOAD).hexdigest()))
    assert file.getvalue() == PAYLOAD


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (chunk(4, b"late"), "TRUNCATED"),
        (sync_pb2.Chunk(offset=0, data=b"flip", crc32=zlib.crc32(b"flop")), "BAD_CHECKSUM"),
        (chunk(0, b"x" * 11), "TOO_LARGE"),
        (chunk(0, b""), "TOO_LARGE"),
        (chunk(0, b"x" * (MAX_CHUNK_BYTES + 1)), "TOO_LARGE"),
    ],
    ids=["reordered", "bit flip", "longer than announced", "empty", "chunk over 1 MiB"],
)
def test_a_bad_chunk_is_refused_before_it_is_written(bad, reason):
    file = io.BytesIO()
    with pytest.raises(ProtocolError) as error:
        PayloadWriter(file, 10, hashlib.sha256()).write(bad)
    assert reason_of(error) == reason
    assert file.getvalue() == b""


@pytest.mark.parametrize(
    ("total", "sha256", "reason"),
    [(5, hashlib.sha256(b"data").hexdigest(), "TRUNCATED"), (4, "0" * 64, "BAD_CHECKSUM")],
)
def test_a_payload_that_is_not_whole_is_refused_at_its_end(total, sha256, reason):
    writer = PayloadWriter(io.BytesIO(), total, hashlib.sha256())
    writer.write(chunk(0, b"data"))
    with pytest.raises(ProtocolError) as error:
        writer.finish(sync_pb2.End(sha256=sha256))
    assert reason_of(error) == reason


def test_a_full_disk_names_path_and_bytes(tmp_path):
    class FullFile(io.BytesIO):
        def write(self, _):
            raise OSError(errno.ENOSPC, "No space left on device")

    writer = PayloadWriter(FullFile(), 4, hashlib.sha256(), path=tmp_path / "spool")
    with pytest.raises(DiskFullError, match=r"spool \(needs 4 bytes\)"):
        writer.write(chunk(0, b"data"))


def test_tensors_survive_the_codec_bit_for_bit():
    values = np.array([0.0, -0.0, np.inf, 1e-45, np.float32(1) / 3], np.float32)
    tensor = TensorSpec(name="t", shape=(5,))
    assert codec.decode(bytes(codec.encode(values)), tensor).tobytes() == values.tobytes()


def test_encoding_copies_nothing_that_is_contiguous():
    values = np.zeros((4, 4), np.float32)
    assert np.shares_memory(np.frombuffer(codec.encode(values), np.float32), values)


def test_bytes_of_another_length_are_no_tensor():
    with pytest.raises(ProtocolError, match=r"t has 4 bytes \(expected 8\)"):
        codec.decode(b"1234", TensorSpec(name="t", shape=(2,)))


def test_the_manifest_survives_the_wire():
    manifest = toy_manifest(num_experts=3)
    assert Manifest.from_proto(manifest.to_proto()) == manifest


def test_parameter_names_say_their_expert():
    assert expert_of("layers.3.experts.17.w1") == 17
    assert expert_of("layers.3.router.weight") == -1


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        ({"name": "../etc", "shape": (1,)}, "tensor name"),
        ({"name": "x" * 300, "shape": (1,)}, "tensor name"),
        ({"name": "t", "shape": (0,)}, "positive sizes"),
        ({"name": "t", "shape": (1,) * 9}, "at most 8"),
        ({"name": "t", "shape": (2**40, 2**40)}, f"at most {MAX_MODEL_BYTES:,}"),
        ({"name": "t", "shape": (1,), "expert": -2}, "expert of t"),
    ],
    ids=["path", "long name", "empty", "many dimensions", "absurd size", "negative expert"],
)
def test_an_absurd_tensor_is_refused_before_memory_is_taken(tensor, said):
    with pytest.raises(ProtocolError, match=said):
        TensorSpec.from_proto(sync_pb2.Tensor(**{"expert": -1, **tensor}))


def test_a_manifest_out_of_order_or_with_another_hash_is_refused():
    wire = toy_manifest().to_proto()
    unsorted = sync_pb2.Manifest(tensors=reversed(wire.tensors), sha256=wire.sha256)
    with pytest.raises(ProtocolError, match="not sorted"):
        Manifest.from_proto(unsorted)
    with pytest.raises(ProtocolError, match="manifest hash"):
        Manifest.from_proto(sync_pb2.Manifest(tensors=wire.tensors, sha256="0" * 64))


def test_a_header_may_list_only_tensors_of_the_manifest_in_order():
    manifest = toy_manifest()
    wire = list(manifest.to_proto().tensors)
    assert manifest.select(wire[1:]) == manifest.tensors[1:]
    for wrong in (wire[::-1], [wire[0], wire[0]], [sync_pb2.Tensor(name="no", shape=[1])]):
        with pytest.raises(ProtocolError) as error:
            manifest.select(wrong)
        assert reason_of(error) == "WRONG_SHAPE"


def test_moments_of_an_expert_are_two_tensors_and_a_step_each():
    assert [t.name for t in toy_manifest().moments_of(1)] == [
        "exp_avg.layers.0.experts.1.w1",
        "exp_avg_sq.layers.0.experts.1.w1",
        "step.layers.0.experts.1.w1",
    ]
