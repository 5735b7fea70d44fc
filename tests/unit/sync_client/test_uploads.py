"""One push: its key, what is worth another attempt, how fast the link is."""

from __future__ import annotations

import numpy as np
import pytest
from builders.peer_events import reply
from builders.toy_learner import toy_manifest
from spes_proto.v1 import sync_pb2
from spes_sync.client.actions import Push
from spes_sync.client.learner import JobTerms
from spes_sync.client.uploads import Shipment, Uploads
from spes_sync.client.work import Work
from spes_sync.codec import encode
from spes_sync.errors import ServerUnavailableError

TERMS = JobTerms(job_uid="job", incarnation=2, peer="uni-a.0", settings_json="{}")
SHIPMENT = Shipment(
    push=Push(round=3, base_version=2, epoch=5),
    kind=sync_pb2.DELTA,
    part=sync_pb2.ALL,
    work=Work(steps=2, tokens=16, loss_sum=3.0),
)


class FakeConnection:
    """Keeps what is pushed and gives one answer to all."""

    def __init__(self, answer: sync_pb2.PushReply) -> None:
        self._answer = answer
        self.parts: list[list[sync_pb2.PushPart]] = []

    def push(self, parts, *, deadline=None, unwanted) -> sync_pb2.PushReply:
        assert deadline is None
        assert not unwanted()
        self.parts.append(list(parts))
        return self._answer


def push(tmp_path, answer: sync_pb2.PushReply, *, times: int = 1, size: int = 4):
    connection = FakeConnection(answer)
    uploads = Uploads(connection, TERMS, tmp_path)  # type: ignore[arg-type]
    manifest = toy_manifest(size=size)
    values = (encode(np.full(size, 0.5, np.float32)) for _ in manifest)
    payload = uploads.spool(manifest.tensors, values)
    for _ in range(times):
        uploads.send(SHIPMENT, payload)
    return uploads, connection


def test_header_says_whose_work_it_is(tmp_path):
    _, connection = push(tmp_path, reply("VERIFIED"))
    header = connection.parts[0][0].header
    assert header.key == sync_pb2.PushKey(
        job_uid="job",
        incarnation=2,
        peer="uni-a.0",
        round=3,
        base_version=2,
        epoch=5,
        part=sync_pb2.ALL,
    )
    assert (header.steps, header.tokens, header.loss) == (2, 16, 1.5)
    assert header.total_bytes == 3 * 4 * 4


def test_retransmission_sends_the_same_bytes(tmp_path):
    _, connection = push(tmp_path, reply("VERIFIED"), times=2)
    assert connection.parts[0] == connection.parts[1]


@pytest.mark.parametrize("reason", ["TRUNCATED", "BAD_CHECKSUM", "DISK_FULL"])
def test_push_that_was_not_kept_is_worth_another_attempt(tmp_path, reason):
    with pytest.raises(ServerUnavailableError, match=reason):
        push(tmp_path, reply("REFUSED", reason=reason))


def test_refusal_for_good_is_an_answer(tmp_path):
    push(tmp_path, reply("REFUSED", reason="WRONG_SHAPE"))


def test_only_large_uploads_tell_the_rate(tmp_path):
    small, _ = push(tmp_path, reply("VERIFIED"))
    assert small.seconds_for(1 << 40) == 0
    large, _ = push(tmp_path, reply("VERIFIED"), size=1 << 17)
    assert large.seconds_for(1 << 40) > 0
