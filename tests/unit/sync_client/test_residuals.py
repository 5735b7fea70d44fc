"""What lossy pushes owe: which file is true, after any order of crash, commit and relaunch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from builders.crash_points import PEER_LOSS_POINT, PEER_PUSH_POINTS
from builders.toy_learner import PSI, phi, toy_manifest
from spes_proto.v1 import sync_pb2
from spes_sync.client.residuals import Residuals
from spes_sync.disk import Disk
from spes_sync.errors import DivergedError
from spes_sync.quantize import Codec, decode

SIZE = 40
MANIFEST = toy_manifest(num_experts=2, size=SIZE)
DISK = Disk(fsync=lambda _: None)
CODECS = pytest.mark.parametrize("codec", [Codec.BF16, Codec.INT8, Codec.UINT8], ids=str)


def opened(directory: Path, *, incarnation: int = 1) -> Residuals:
    return Residuals(directory, MANIFEST, incarnation, DISK)


def deltas(seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {t.name: random.standard_normal(SIZE).astype(np.float32) for t in MANIFEST}


def push(  # noqa: PLR0913  each is a part of a push's key
    residuals: Residuals,
    values: dict[str, np.ndarray],
    sha256: str,
    *,
    base: int = 0,
    codec: Codec = Codec.INT8,
    part: sync_pb2.Part = sync_pb2.ALL,
) -> dict[str, np.ndarray]:
    """Encode and offer; returns what the server gets."""
    tensors = MANIFEST.part(part, [0, 1])
    chosen = [(tensor.name, values[tensor.name]) for tensor in tensors]
    sent = {}
    for tensor, data in zip(tensors, residuals.encoded(chosen, tensors, codec), strict=True):
        sent[tensor.name] = np.empty(SIZE, np.float32)
        decode(codec, data, sent[tensor.name])
    residuals.offer(base, part, sha256)
    return sent


def owed(directory: Path) -> dict[str, np.ndarray]:
    """What a new process would add to its next push: what it sends of nothing, without loss."""
    nothing = {name: np.zeros(SIZE, np.float32) for name in MANIFEST.names}
    return push(opened(directory), nothing, "f" * 64, base=99, codec=Codec.FP32)


def check_owed(directory: Path, expected: dict[str, np.ndarray], names: Iterable[str] = ()) -> None:
    actual = owed(directory)
    for name in names or MANIFEST.names:
        assert np.array_equal(actual[name], expected[name]), name


def minus(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: a[name] - b[name] for name in a}


NOTHING = {name: np.zeros(SIZE, np.float32) for name in MANIFEST.names}
SHA, OTHER = "a" * 64, "b" * 64


@CODECS
def test_a_push_that_counted_leaves_what_its_codec_dropped(tmp_path, codec):
    values, residuals = deltas(0), opened(tmp_path)
    sent = push(residuals, values, SHA, codec=codec)
    residuals.reach(1, [(1, {SHA})])
    check_owed(tmp_path, minus(values, sent))


@pytest.mark.parametrize("codec", Codec, ids=str)
def test_what_a_push_drops_is_told_as_a_share_of_what_arrives(tmp_path, codec):
    residuals, values = opened(tmp_path), deltas(1)
    sent = push(residuals, values, "a" * 64, codec=codec)
    dropped = np.concatenate([values[name] - sent[name] for name in MANIFEST.names])
    arrived = np.concatenate([sent[name] for name in MANIFEST.names])
    expected = np.linalg.norm(dropped) / np.linalg.norm(arrived)
    assert residuals.dropped.relative == pytest.approx(expected, rel=1e-4)
    assert (codec is Codec.FP32) == (residuals.dropped.relative == 0)


def test_a_push_that_did_not_count_changes_nothing(tmp_path):
    first, residuals = deltas(0), opened(tmp_path)
    sent = push(residuals, first, SHA)
    residuals.reach(1, [(1, {SHA})])
    push(residuals, deltas(1), OTHER, base=1)
    residuals.reach(2, [(2, {SHA})])  # of another version's push: decides nothing here
    check_owed(tmp_path, minus(first, sent))


def test_a_new_process_learns_which_of_two_processes_pushes_counted(tmp_path):
    values, again = deltas(0), deltas(1)
    sent = push(opened(tmp_path), values, SHA)
    relaunched = opened(tmp_path)
    assert relaunched.undecided == 0
    sent_again = push(relaunched, again, OTHER)
    third = opened(tmp_path)
    third.reach(1, [(1, {OTHER})])
    assert third.undecided is None
    check_owed(tmp_path, minus(again, sent_again))
    assert not np.array_equal(again[PSI] - sent_again[PSI], values[PSI] - sent[PSI])


def test_deciding_twice_is_deciding_once(tmp_path):
    values, residuals = deltas(0), opened(tmp_path)
    sent = push(residuals, values, SHA)
    residuals.reach(1, [(1, {SHA})])
    opened(tmp_path).reach(1, [(1, {SHA})])  # killed between the two, told again
    check_owed(tmp_path, minus(values, sent))


def test_what_is_owed_goes_with_the_next_push(tmp_path):
    residuals, total, arrived = opened(tmp_path), dict(NOTHING), dict(NOTHING)
    for number in range(5):
        values = deltas(number)
        sent = push(residuals, values, f"{number:064x}", base=number)
        residuals.reach(number + 1, [(number + 1, {f"{number:064x}"})])
        total = {name: total[name] + values[name] for name in total}
        arrived = {name: arrived[name] + sent[name] for name in arrived}
    left = owed(tmp_path)
    for name in MANIFEST.names:
        assert arrived[name] + left[name] == pytest.approx(total[name], abs=1e-5)
        assert np.abs(left[name]).max() > 0


def test_parts_are_decided_one_by_one(tmp_path):
    values, residuals = deltas(0), opened(tmp_path)
    sent = push(residuals, values, SHA)
    residuals.reach(1, [(1, {SHA})])
    before = minus(values, sent)
    push(residuals, deltas(1), OTHER, base=1, codec=Codec.FP32, part=sync_pb2.EXPERTS)
    shared = push(residuals, deltas(2), "c" * 64, base=1, part=sync_pb2.SHARED)
    relaunched = opened(tmp_path)
    relaunched.reach(2, [(2, {OTHER})])
    check_owed(tmp_path, NOTHING, [phi(0), phi(1)])  # flushed
    check_owed(tmp_path, before, [PSI])  # its push did not count
    assert shared[PSI].any()


def test_nothing_is_owed_of_experts_that_came_or_went(tmp_path):
    values, residuals = deltas(0), opened(tmp_path)
    sent = push(residuals, values, SHA)
    residuals.reach(1, [(1, {SHA})])
    residuals.drop(MANIFEST.of_expert(1))
    check_owed(tmp_path, NOTHING, [phi(1)])
    check_owed(tmp_path, minus(values, sent), [PSI, phi(0)])


def test_a_server_that_began_anew_is_owed_nothing(tmp_path):
    residuals = opened(tmp_path)
    push(residuals, deltas(0), SHA)
    residuals.reach(1, [(1, {SHA})])
    assert opened(tmp_path, incarnation=2).undecided is None
    check_owed(tmp_path, NOTHING)


def test_lossless_pushes_write_nothing(tmp_path):
    residuals = opened(tmp_path)
    values = deltas(0)
    sent = push(residuals, values, SHA, codec=Codec.FP32)
    assert all(np.array_equal(sent[name], values[name]) for name in values)
    assert not (tmp_path / "residuals").exists()


@pytest.mark.parametrize("codec", Codec, ids=str)
def test_a_value_that_is_not_finite_is_never_sent(tmp_path, codec):
    values = deltas(0) | {PSI: np.full(SIZE, np.nan, np.float32)}
    with pytest.raises(DivergedError, match="psi is not finite"):
        push(opened(tmp_path), values, SHA, codec=codec)


class KilledError(Exception):
    """Stands for SIGKILL."""


def doomed_at(point: str, directory: Path) -> Residuals:
    """Of a process that is killed after a durable write."""

    def killed(reached: str) -> None:
        if reached == point:
            raise KilledError

    return Residuals(directory, MANIFEST, 1, Disk(reached=killed, fsync=lambda _: None))


def push_and_settle_until(point: str, directory: Path, values: dict[str, np.ndarray]) -> None:
    """A second round whose push counts."""
    doomed = doomed_at(point, directory)
    push(doomed, values, OTHER, base=1)
    doomed.reach(2, [(2, {OTHER})])


@pytest.mark.parametrize("point", PEER_PUSH_POINTS)
def test_a_crash_after_any_write_loses_and_repeats_nothing(tmp_path, point):
    values, more = deltas(0), deltas(1)
    sent = push(opened(tmp_path), values, SHA)
    before = minus(values, sent)
    opened(tmp_path).reach(1, [(1, {SHA})])
    with pytest.raises(KilledError):
        push_and_settle_until(point, tmp_path, more)
    relaunched = opened(tmp_path)
    if point == "residual-written":  # the push was never sent
        check_owed(tmp_path, before)
        return
    relaunched.reach(2, [(2, {OTHER})])
    left = owed(tmp_path)
    assert not any(np.array_equal(left[name], before[name]) for name in left)
    for name in left:
        assert np.abs(left[name]).max() <= np.abs(before[name] + more[name]).max() / 250


def test_a_crash_while_an_expert_is_lost_keeps_what_else_is_owed(tmp_path):
    values, residuals = deltas(0), opened(tmp_path)
    before = minus(values, push(residuals, values, SHA))
    residuals.reach(1, [(1, {SHA})])
    with pytest.raises(KilledError):
        doomed_at(PEER_LOSS_POINT, tmp_path).drop(MANIFEST.of_expert(1))
    opened(tmp_path).drop(MANIFEST.of_expert(1))
    check_owed(tmp_path, NOTHING, [phi(1)])
    check_owed(tmp_path, before, [PSI, phi(0)])
