"""Versions whose experts are merged, and those that an outer step moves: values, frame, files."""

from __future__ import annotations

import errno
import hashlib
import os
import tracemalloc

import numpy as np
import pytest
from builders.payload_hashes import hashes_in
from builders.sync_rounds import A
from builders.sync_server import job_settings
from safetensors.numpy import load_file
from spes_sync.aggregate import Delta, write_seed, write_version
from spes_sync.codec import encode
from spes_sync.disk import Disk
from spes_sync.downlink import Making
from spes_sync.errors import DiskFullError, DivergedError
from spes_sync.manifest import SHARED, Manifest, TensorSpec
from spes_sync.merge import MergeStep, merge_experts
from spes_sync.outer import OuterStep
from spes_sync.quantize import PIECE_ELEMENTS, Codec
from spes_sync.server.settings import Settings
from spes_sync.versions import DELTA, MODEL, VELOCITY, CommitRecord, Retention, Versions

DISK = Disk(fsync=lambda _: None)
NO_TENSORS = (2).to_bytes(8, "little") + b"{}"  # a safetensors file all the same
EXPERTS = range(4)
MERGE = MergeStep(alpha=0.1, num_donors=2)


def manifest_of(shape=(3, 5), *, replicated=False) -> Manifest:
    """Two layers of four experts with three matrices each, and a shared tensor."""
    experts = (
        TensorSpec(
            name=f"layers.{layer}.experts.{expert}.{matrix}",
            shape=shape,
            expert=SHARED if replicated else expert,
        )
        for layer in range(2)
        for expert in EXPERTS
        for matrix in ("w1", "v1", "w2")
    )
    return Manifest((TensorSpec(name="embedding.weight", shape=(7, 5)), *experts))


def model(manifest, seed) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {t.name: random.standard_normal(t.shape).astype(np.float32) for t in manifest}


def payload(path, values):
    path.write_bytes(b"".join(bytes(encode(values[name])) for name in sorted(values)))
    return path


class Volume:
    """A base version of random values, and versions made from it."""

    def __init__(self, root, manifest=None) -> None:
        self.root = root
        self.manifest = manifest or manifest_of()
        self.values = model(self.manifest, 0)
        (root / "0").mkdir()
        write_seed(payload(root / "seed", self.values), self.manifest, target=root / "0", disk=DISK)

    def push(self, seed, experts, *, weight=1.0) -> tuple[Delta, dict[str, np.ndarray]]:
        tensors = self.manifest.trained_by(experts)
        values = model(Manifest(tensors), seed)
        path = payload(self.root / f"push-{seed}", values)
        delta = Delta(
            path=path,
            tensors=tensors,
            weight=weight,
            experts=frozenset(experts),
            hashes=hashes_in(path, tensors),
        )
        return delta, values

    def commit(self, number, deltas, *, disk=DISK, **how):
        (self.root / str(number)).mkdir(exist_ok=True)
        making = Making(
            base=self.root / str(number - 1),
            target=self.root / str(number),
            manifest=self.manifest,
            disk=disk,
            **how,
        )
        return write_version(deltas, making)

    def served(self, number) -> dict[str, np.ndarray]:
        return load_file(self.root / str(number) / MODEL)

    def sent(self, number) -> dict[str, np.ndarray]:
        return load_file(self.root / str(number) / DELTA)


def test_all_experts_are_merged_as_their_owners_leave_them(tmp_path):
    volume = Volume(tmp_path)
    delta, pushed = volume.push(1, [0, 2])  # nobody pushed 1 and 3: they are merged all the same
    written = volume.commit(1, [delta], merge=MERGE)
    after = {name: old + pushed.get(name, np.float32(0)) for name, old in volume.values.items()}
    merged = {n: v.copy() for n, v in merge_experts(after, after.__getitem__, MERGE)}
    served, sent = volume.served(1), volume.sent(1)
    for name, old in volume.values.items():
        expected = old + (merged[name] - old) if name in merged else after[name]
        assert served[name].tobytes() == expected.tobytes(), name
        assert (old + sent[name]).tobytes() == served[name].tobytes(), name
        assert written.tensor_hashes[name] == hashlib.sha256(encode(served[name])).hexdigest()


def test_without_alpha_a_version_is_bit_for_bit_the_one_without_a_merge(tmp_path):
    volume = Volume(tmp_path)
    delta, _ = volume.push(1, [0, 1, 2, 3])
    plain = volume.commit(1, [delta])
    spec = Settings.parse(job_settings(algorithm__merge={"everyRounds": 1, "warmupRounds": 1}))
    same = volume.commit(1, [delta], merge=spec.merge_in(1))
    assert same.model_sha256 == plain.model_sha256


def test_merge_of_tensors_of_several_pieces_keeps_their_places(tmp_path):
    manifest = Manifest(
        tuple(
            TensorSpec(name=f"layers.0.experts.{e}.w1", shape=(PIECE_ELEMENTS + 3,), expert=e)
            for e in EXPERTS
        )
    )
    volume = Volume(tmp_path, manifest)
    delta, pushed = volume.push(1, [3], weight=0.0)
    volume.commit(1, [delta], merge=MERGE)
    after = {name: old + pushed.get(name, np.float32(0)) for name, old in volume.values.items()}
    for name, value in merge_experts(after, after.__getitem__, MERGE):
        old = volume.values[name]
        assert np.array_equal(volume.served(1)[name], old + (value - old))


def test_nothing_of_a_merge_stays_on_the_disk(tmp_path):
    volume = Volume(tmp_path)
    delta, _ = volume.push(1, [0])
    volume.commit(1, [delta], merge=MERGE)
    assert sorted(path.name for path in (tmp_path / "1").iterdir()) == [DELTA, MODEL]


def test_memory_of_a_merged_version_is_a_stack_not_a_model(tmp_path):
    manifest = manifest_of((500, 500))
    stack = len(EXPERTS) * 500 * 500 * 4
    assert manifest.num_bytes > 6 * stack
    volume = Volume(tmp_path, manifest)
    delta, _ = volume.push(1, EXPERTS)
    volume.values.clear()
    tracemalloc.start()
    try:
        volume.commit(1, [delta], merge=MERGE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    buffers = 12 * PIECE_ELEMENTS * 4
    assert peak < 1.5 * stack + buffers


def test_lossy_downlink_owes_what_it_drops_of_a_merge(tmp_path):
    """The theta of two merged versions is the one that FP32 serves, within its rounding."""
    (tmp_path / "exact").mkdir()
    (tmp_path / "lossy").mkdir()
    exact, lossy = Volume(tmp_path / "exact"), Volume(tmp_path / "lossy")
    for number in (1, 2):
        for volume, codec in ((exact, Codec.FP32), (lossy, Codec.INT8)):
            delta, _ = volume.push(number, EXPERTS)
            volume.commit(number, [delta], merge=MERGE, downlink=codec)
    owed = load_file(tmp_path / "lossy/2/residual.safetensors")
    for name, value in exact.served(2).items():
        assert lossy.served(2)[name] + owed[name] == pytest.approx(value, rel=1e-5, abs=1e-5)
        assert not np.array_equal(lossy.served(2)[name], value)


def test_full_disk_at_the_scratch_file_is_named(tmp_path, monkeypatch):
    volume = Volume(tmp_path)
    delta, _ = volume.push(1, [0])

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(DiskFullError, match=r"merging\.bin .needs 1,440 bytes"):
        volume.commit(1, [delta], merge=MERGE)


def test_merge_that_would_not_be_finite_is_refused_and_named(tmp_path):
    volume = Volume(tmp_path)
    delta, values = volume.push(1, [0])
    payload(delta.path, {name: np.full_like(value, 3e38) for name, value in values.items()})
    with pytest.raises(DivergedError, match=r"experts\.\d\.\w\w would not be finite"):
        volume.commit(1, [delta], merge=MergeStep(alpha=1.0, num_donors=3))


# When a merge is due.


def merges(**merge) -> list[tuple[int, float]]:
    settings = Settings.parse(job_settings(algorithm__merge=merge))
    due = ((number, settings.merge_in(number)) for number in range(1, 400))
    return [(number, step.alpha) for number, step in due if step is not None]


def test_defaults_merge_41_times_as_the_paper_does():
    """At 50 steps a round: steps 300, 600, ..., 12,300."""
    due = merges()
    assert [number for number, _ in due] == list(range(6, 250, 6))
    assert len(due) == 41
    alphas = dict(due)
    for step, alpha in ((300, 0.0976), (3000, 0.076), (6000, 0.052), (12300, 0.0016)):
        assert alphas[step // 50] == pytest.approx(alpha)
    assert sum(alphas.values()) == pytest.approx(2.0336)


def test_without_the_setting_nothing_is_merged():
    assert Settings.parse(job_settings()).merge_in(6) is None


# The outer step.


def diloco(tmp_path) -> Volume:
    return Volume(tmp_path, manifest_of(replicated=True))


def test_outer_step_of_rate_one_without_momentum_is_the_average_bit_for_bit(tmp_path):
    volume = diloco(tmp_path)
    deltas = [volume.push(seed, [], weight=1 / 3)[0] for seed in (1, 2, 3)]
    plain = volume.commit(1, deltas)
    moved = volume.commit(1, deltas, outer=OuterStep(learning_rate=1.0, momentum=0.0))
    assert moved == plain


def test_velocity_belongs_to_the_version_and_its_hash_to_the_record(tmp_path):
    volume = diloco(tmp_path)
    outer = OuterStep(learning_rate=0.7, momentum=0.9)
    steps = [volume.push(seed, [])[0] for seed in (1, 2)]
    first = volume.commit(1, steps[:1], outer=outer)
    second = volume.commit(2, steps[1:], outer=outer)
    for number, written in ((1, first), (2, second)):
        data = (tmp_path / str(number) / VELOCITY).read_bytes()
        assert written.files[VELOCITY] == hashlib.sha256(data).hexdigest()
    assert volume.commit(2, steps[1:], outer=outer) == second  # the same from the same base


def test_outer_step_that_would_not_be_finite_is_refused_and_named(tmp_path):
    volume = diloco(tmp_path)
    delta, values = volume.push(1, [])
    payload(delta.path, {name: np.full_like(value, 3e38) for name, value in values.items()})
    with pytest.raises(DivergedError, match=r"embedding\.weight would not be finite"):
        volume.commit(1, [delta], outer=OuterStep(learning_rate=10.0, momentum=0.5))
    assert volume.served(0)["embedding.weight"].tobytes() == (
        volume.values["embedding.weight"].tobytes()
    )


def test_velocity_goes_and_stays_with_its_model(tmp_path):
    versions = Versions(tmp_path, DISK)
    for number in range(5):
        path, files = versions.create(number), {}
        for name in (MODEL, DELTA, VELOCITY):
            (path / name).write_bytes(NO_TENSORS)
            files[name] = hashlib.sha256(NO_TENSORS).hexdigest()
        record = CommitRecord(
            version=number,
            job_uid="job",
            incarnation=1,
            epoch=1,
            global_tokens=0,
            model_sha256="m",
            files=files,
            leases={A: ()},
        )
        versions.publish(record, {}, {})
    versions.clean(Retention(every_rounds=1, keep_last=2))
    kept = {n: (versions.path(n) / VELOCITY).exists() for n in range(5)}
    assert kept == {n: (versions.path(n) / MODEL).exists() for n in range(5)}
    assert [n for n, there in kept.items() if there] == [3, 4]
    (versions.path(4) / VELOCITY).unlink()
    assert "velocity.safetensors" in versions.fault(4)  # without it the next step is another
