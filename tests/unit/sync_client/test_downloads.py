"""Pulls from a server that cannot be trusted to be whole, or to be ours."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from builders.payload_hashes import root_of
from builders.toy_learner import toy_manifest
from spes_proto.v1 import sync_pb2
from spes_sync.client.transfer import Download
from spes_sync.codec import encode
from spes_sync.errors import DivergedError, ServerUnavailableError
from spes_sync.frames import iter_chunks
from spes_sync.quantize import Codec

MANIFEST = toy_manifest(num_experts=2, size=300_000)
VALUES = [np.full(tensor.shape, index, np.float32) for index, tensor in enumerate(MANIFEST)]
PAYLOAD = b"".join(bytes(encode(value)) for value in VALUES)


class BrokenStreamError(grpc.RpcError):
    def code(self):
        return grpc.StatusCode.UNAVAILABLE

    def details(self):
        return "cut"

    def trailing_metadata(self):
        return ()


class FakeCall:
    """Parts of an answer; an exception among them is raised."""

    def __init__(self, parts) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[sync_pb2.PullPart]:
        for part in self._parts:
            if isinstance(part, Exception):
                raise part
            yield part

    def cancel(self) -> None:
        pass


class FakeConnection:
    """Answers each Pull with the next of its answers, made for the offset that is asked for."""

    def __init__(self, *answers) -> None:
        self._answers = list(answers)
        self.offsets: list[int] = []

    def pull(self, request: sync_pb2.PullRequest) -> FakeCall:
        self.offsets.append(request.offset)
        return FakeCall(self._answers.pop(0)(request.offset))


def header(**changes) -> sync_pb2.PullPart:
    fields = {
        "version": 4,
        "base_version": 3,
        "codec": sync_pb2.FP32,
        "total_bytes": len(PAYLOAD),
        "tensors": MANIFEST.to_proto().tensors,
    }
    return sync_pb2.PullPart(header=sync_pb2.PullHeader(**{**fields, **changes}))


def whole(
    offset: int, payload: bytes = PAYLOAD, *, codec: Codec = Codec.FP32, **changes
) -> Iterator[sync_pb2.PullPart]:
    yield header(codec=codec.wire, **changes)
    yield from iter_chunks(sync_pb2.PullPart, [payload], offset=offset)
    yield sync_pb2.PullPart(end=sync_pb2.End(sha256=root_of(payload, MANIFEST, codec)))


def cut_after(chunks: int):
    def answer(offset: int):
        return [*list(whole(offset))[: 1 + chunks], BrokenStreamError()]

    return answer


def download(tmp_path, connection: FakeConnection, attempts: int = 1):
    pull = Download(sync_pb2.PullRequest(have_version=3), tmp_path / "pull.spool", MANIFEST)
    try:
        for attempt in range(attempts):
            try:
                return pull.attempt(connection, unwanted=lambda: False)  # type: ignore[arg-type]
            except ServerUnavailableError:
                if attempt == attempts - 1:
                    raise
    finally:
        pull.close()
    raise AssertionError


def check(frame) -> None:
    assert (frame.version, frame.absolute) == (4, False)
    for (_, value), expected in zip(frame.read(), VALUES, strict=True):
        assert np.array_equal(value, expected)


def test_whole_answer_is_a_frame(tmp_path):
    check(download(tmp_path, FakeConnection(whole)))


def test_broken_pull_goes_on_where_it_broke(tmp_path):
    connection = FakeConnection(cut_after(1), cut_after(1), whole)
    check(download(tmp_path, connection, attempts=3))
    assert connection.offsets == [0, 1 << 20, 2 << 20]


def test_nothing_is_applied_before_the_hash_is_verified(tmp_path):
    def wrong(offset):
        return [
            *list(whole(offset))[:-1],
            sync_pb2.PullPart(end=sync_pb2.End(sha256="0" * 64)),
        ]

    with pytest.raises(DivergedError, match=r"version 4: .*SHA-256 of the payload differs"):
        download(tmp_path, FakeConnection(wrong), attempts=2)


def flipped(_: int) -> list[sync_pb2.PullPart]:
    parts = list(whole(0))
    parts[2].chunk.crc32 ^= 1
    return parts


def reordered(_: int) -> list[sync_pb2.PullPart]:
    parts = list(whole(0))
    return [parts[0], parts[2], parts[1], *parts[3:]]


ABSURD = [sync_pb2.Tensor(name="psi", shape=[1 << 40], expert=-1)]


@pytest.mark.parametrize(
    "answer",
    [
        flipped,
        reordered,
        lambda _: list(whole(0))[:-1],
        lambda _: list(whole(0))[1:],
        lambda _: [header(total_bytes=len(PAYLOAD) + 1)],
        lambda _: [header(total_bytes=1 << 50)],
        lambda _: [header(tensors=ABSURD, total_bytes=1 << 42)],
        lambda _: [header(tensors=[*MANIFEST.to_proto().tensors] * 2)],
        lambda _: [header(base_version=2)],
    ],
    ids=[
        "bit flip",
        "reordered",
        "no end",
        "no header",
        "wrong length",
        "absurd length",
        "absurd tensor",
        "tensors twice",
        "deltas against another base",
    ],
)
def test_answer_that_is_not_right_is_no_frame(tmp_path, answer):
    with pytest.raises(ServerUnavailableError):
        download(tmp_path, FakeConnection(answer))
    spool = tmp_path / "pull.spool"
    assert not spool.exists() or spool.stat().st_size <= len(PAYLOAD)


def test_answer_that_changes_while_it_is_resumed_is_begun_again(tmp_path):
    def other(offset):
        return whole(offset, version=5)

    connection = FakeConnection(cut_after(1), other, whole)
    check(download(tmp_path, connection, attempts=3))
    assert connection.offsets == [0, 1 << 20, 0]


def test_pickle_is_refused_and_never_executed(tmp_path):
    canary = tmp_path / "canary"
    payload = b"cposix\nsystem\n(S'touch " + os.fsencode(canary) + b"'\ntR."
    chunk = sync_pb2.Chunk(offset=0, data=payload, crc32=zlib.crc32(payload))
    answer = [
        header(total_bytes=len(payload)),
        sync_pb2.PullPart(chunk=chunk),
        sync_pb2.PullPart(end=sync_pb2.End(sha256=root_of(payload, MANIFEST))),
    ]
    with pytest.raises(ServerUnavailableError, match="announced"):
        download(tmp_path, FakeConnection(lambda _: answer))
    assert not canary.exists()


def in_bf16(offset: int, **changes):
    values = b"".join(bytes(v.view("<u2")[1::2]) for v in VALUES)  # small whole numbers are exact
    return whole(offset, values, codec=Codec.BF16, total_bytes=len(values), **changes)


def test_each_tensor_comes_in_its_codec(tmp_path):
    check(download(tmp_path, FakeConnection(in_bf16)))


@pytest.mark.parametrize(
    "changes",
    [{"codecs": [sync_pb2.BF16]}, {"codec": 9}, {"codec": sync_pb2.INT8}],
    ids=["one codec for three tensors", "unknown", "another size"],
)
def test_codecs_that_do_not_fit_the_tensors_are_refused(tmp_path, changes):
    with pytest.raises(ServerUnavailableError, match="not as announced"):
        download(tmp_path, FakeConnection(lambda _: [header(**changes)]))
