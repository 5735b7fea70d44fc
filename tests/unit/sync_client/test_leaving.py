"""Handing over: what is begun within the grace, and in which order."""

from __future__ import annotations

from datetime import timedelta

import pytest
from builders.peer_events import reply
from builders.toy_learner import ToyLearner
from spes_proto.v1 import sync_pb2
from spes_sync.client.actions import Leave, Push
from spes_sync.client.leaving import Handover, Leaving
from spes_sync.client.transfer import Payload
from spes_sync.client.uploads import Shipment
from spes_sync.client.work import Work
from spes_sync.errors import ServerUnavailableError
from spes_sync.manifest import Manifest

WORK = Work(steps=1, tokens=8)
PUSH = Push(round=3, base_version=2, epoch=1)


class FakeUploads:
    """Takes everything, at a given speed; `broken` parts never arrive."""

    def __init__(
        self,
        bytes_per_second: float = 1e9,
        broken: frozenset[str] = frozenset(),
        verdict: str = "VERIFIED",
    ) -> None:
        self._rate, self._broken, self._verdict = bytes_per_second, broken, verdict
        self.sent: list[str] = []

    def seconds_for(self, num_bytes: int) -> float:
        return num_bytes / self._rate

    def spool(self, tensors, buffers) -> Payload:
        for _ in buffers:
            pass
        return Payload(path=None, tensors=tensors, num_bytes=0, sha256="")

    def send(self, shipment: Shipment, payload: Payload, *, deadline: timedelta):
        assert payload.tensors
        assert deadline > timedelta(0)
        name = sync_pb2.Part.Name(shipment.part)
        self.sent.append(f"{name}/{shipment.expert}" if name == "MOMENTS" else name)
        if name in self._broken:
            raise ServerUnavailableError("cut")
        return reply(self._verdict)


class FakeExchange:
    """Spools parts of a model; knows which were to go without loss."""

    def __init__(self, uploads: FakeUploads, manifest: Manifest, owned: tuple[int, ...]) -> None:
        self.uploads, self.lossless = uploads, []
        self._manifest, self._owned = manifest, owned

    def num_bytes(self, part, *, lossless) -> int:  # noqa: ARG002 - FP32 is the codec here
        return sum(t.num_bytes for t in self._manifest.part(part, self._owned))

    def spool(self, push, part, *, lossless) -> Payload:  # noqa: ARG002 - all have one base
        if lossless:
            self.lossless.append(sync_pb2.Part.Name(part))
        tensors = self._manifest.part(part, self._owned)
        return Payload(path=None, tensors=tensors, num_bytes=0, sha256="")


def hand_over(
    uploads: FakeUploads, *, push: Push | None = PUSH, whole=False, owned=(0, 1), work=WORK
) -> FakeExchange:
    learner = ToyLearner(a=1, b=2)
    exchange = FakeExchange(uploads, learner.manifest, owned)
    leave = Leave(grace_seconds=10, reason="interrupted", push=push, whole=whole)
    Leaving(learner, exchange).hand_over(  # type: ignore[arg-type]
        Handover(leave=leave, work=work, owned=owned, version=2, epoch=1)
    )
    return exchange


@pytest.mark.parametrize(
    ("changes", "sent"),
    [
        ({}, ["EXPERTS", "SHARED", "MOMENTS/0", "MOMENTS/1"]),
        ({"owned": ()}, ["SHARED"]),
        ({"push": None}, ["MOMENTS/0", "MOMENTS/1"]),
        ({"whole": True}, ["ALL", "MOMENTS/0", "MOMENTS/1"]),
    ],
    ids=["all", "owns nothing", "nothing to push", "offered before"],
)
def test_experts_go_first_then_shared_then_moments(changes, sent):
    uploads = FakeUploads()
    hand_over(uploads, **changes)
    assert uploads.sent == sent


def test_a_part_that_does_not_fit_is_not_begun():
    uploads = FakeUploads(bytes_per_second=0.6)  # EXPERTS take 13 s of 8, SHARED 7, MOMENTS 20
    hand_over(uploads)
    assert uploads.sent == ["SHARED"]


def test_a_part_that_fails_does_not_stop_the_next():
    uploads = FakeUploads(broken=frozenset({"EXPERTS"}))
    hand_over(uploads)
    assert uploads.sent == ["EXPERTS", "SHARED", "MOMENTS/0", "MOMENTS/1"]


def dropped(caplog) -> list[str]:
    return [each.getMessage() for each in caplog.records if "progress dropped" in each.message]


@pytest.mark.parametrize(
    ("uploads", "changes", "parts"),
    [
        (FakeUploads(), {"push": None}, "ALL"),
        (FakeUploads(bytes_per_second=0.6), {}, "EXPERTS"),
        (FakeUploads(broken=frozenset({"SHARED"})), {}, "SHARED"),
        (FakeUploads(verdict="REBASE"), {"whole": True}, "ALL"),
    ],
    ids=["no round takes it", "no time", "cut", "too late"],
)
def test_progress_that_cannot_be_pushed_is_not_dropped_in_silence(caplog, uploads, changes, parts):
    hand_over(uploads, **changes)
    assert dropped(caplog) == [
        f"progress dropped steps=1 tokens=8 parts={parts} reason=interrupted"
    ]


@pytest.mark.parametrize(
    "changes",
    [{}, {"push": None, "whole": True}, {"push": None, "work": Work()}],
    ids=["pushed now", "pushed before", "no progress"],
)
def test_nothing_is_said_where_no_progress_is_lost(caplog, changes):
    hand_over(FakeUploads(), **changes)
    assert dropped(caplog) == []


def test_only_own_experts_go_without_loss():
    assert hand_over(FakeUploads()).lossless == ["EXPERTS"]
    assert hand_over(FakeUploads(), whole=True).lossless == []  # the same bytes as before
