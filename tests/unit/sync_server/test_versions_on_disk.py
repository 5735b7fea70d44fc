"""Aggregation and versions: exact values, order, retention, faults."""

from __future__ import annotations

import errno
import hashlib
import os

import numpy as np
import pytest
from builders.payload_hashes import hashes_in
from builders.raw_peer import MANIFEST
from builders.sync_rounds import A
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file
from spes_sync.aggregate import Delta, write_seed, write_version
from spes_sync.codec import encode, tensor_sha256
from spes_sync.disk import Disk
from spes_sync.downlink import Making
from spes_sync.errors import DiskFullError, DivergedError, VolumeError
from spes_sync.hashes import root_sha256
from spes_sync.leases import Range
from spes_sync.manifest import Manifest, TensorSpec
from spes_sync.tensorfile import TensorReader, tensors_sha256
from spes_sync.versions import CommitRecord, Contribution, Retention, Routed, Versions

DISK = Disk(fsync=lambda _: None)
NO_TENSORS = (2).to_bytes(8, "little") + b"{}"  # a safetensors file all the same
BIG = Manifest((TensorSpec(name="embedding.weight", shape=(700, 401)),))


def model(manifest: Manifest, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {t.name: random.standard_normal(t.shape).astype(np.float32) for t in manifest}


def payload(path, values):
    path.write_bytes(b"".join(bytes(encode(values[name])) for name in sorted(values)))
    return path


def seeded(root, manifest, values):
    base = root / "base"
    base.mkdir()
    written = write_seed(payload(root / "seed", values), manifest, target=base, disk=DISK)
    return base, written


def pushed(root, number, manifest, experts, *, weight=0.5, seed=None):  # noqa: PLR0913
    tensors = manifest.trained_by(experts)
    values = model(Manifest(tensors), number if seed is None else seed)
    path = payload(root / f"push-{number}", values)
    return delta_of(path, tensors, weight=weight, experts=experts), values


def delta_of(path, tensors, *, weight, experts):
    return Delta(
        path=path,
        tensors=tensors,
        weight=weight,
        experts=frozenset(experts),
        hashes=hashes_in(path, tensors),
    )


def committed(root, base, deltas, manifest, name="next"):
    target = root / name
    target.mkdir()
    making = Making(base=base, target=target, manifest=manifest, disk=DISK)
    written = write_version(deltas, making)
    return target, written


def test_version_is_the_base_plus_the_sent_delta_bit_for_bit(tmp_path):
    values = model(MANIFEST, 0)
    base, _ = seeded(tmp_path, MANIFEST, values)
    a, a_values = pushed(tmp_path, 1, MANIFEST, [0, 1])
    b, b_values = pushed(tmp_path, 2, MANIFEST, [3])
    target, written = committed(tmp_path, base, [a, b], MANIFEST)
    served = load_file(target / "model.safetensors")
    sent = load_file(target / "delta.safetensors")
    name, half = "embedding.weight", np.float32(0.5)
    assert np.array_equal(sent[name], half * a_values[name] + half * b_values[name])
    for name in MANIFEST.names:
        assert np.array_equal(served[name], values[name] + sent.get(name, np.float32(0)))
    owner = "layers.0.experts.3.w1"
    assert np.array_equal(served[owner], values[owner] + b_values[owner])
    assert "layers.0.experts.2.w1" not in sent
    assert written.tensor_hashes[owner] == hashlib.sha256(encode(served[owner])).hexdigest()
    assert written.model_sha256 == root_sha256(tensor_sha256(served[n]) for n in MANIFEST.names)
    assert written.frame_hashes == {name: tensor_sha256(value) for name, value in sent.items()}
    for name, sha256 in written.files.items():
        assert tensors_sha256(target / name) == sha256


def test_tensor_of_several_pieces_is_summed_exactly(tmp_path):
    values = model(BIG, 0)
    base, _ = seeded(tmp_path, BIG, values)
    deltas, sums = [], np.zeros((700, 401), np.float32)
    weight = np.float32(1 / 3)
    for number in (1, 2, 3):
        each, pushed_values = pushed(tmp_path, number, BIG, [], weight=1 / 3)
        deltas.append(each)
        sums = sums + weight * pushed_values["embedding.weight"]
    target, _ = committed(tmp_path, base, deltas, BIG)
    served = load_file(target / "model.safetensors")["embedding.weight"]
    assert np.array_equal(served, values["embedding.weight"] + sums)


def test_one_peer_gives_exactly_its_own_sum(tmp_path):
    values = model(MANIFEST, 0)
    base, _ = seeded(tmp_path, MANIFEST, values)
    only, pushed_values = pushed(tmp_path, 1, MANIFEST, [0, 1, 2, 3], weight=1.0)
    target, _ = committed(tmp_path, base, [only], MANIFEST)
    served = load_file(target / "model.safetensors")
    for name in MANIFEST.names:
        assert np.array_equal(served[name], values[name] + pushed_values[name])


def test_nothing_counts_of_experts_that_were_dropped(tmp_path):
    values = model(MANIFEST, 0)
    base, _ = seeded(tmp_path, MANIFEST, values)
    whole, _ = pushed(tmp_path, 1, MANIFEST, [0, 1], weight=1.0)
    partly = delta_of(whole.path, whole.tensors, weight=1.0, experts={1})
    target, _ = committed(tmp_path, base, [partly], MANIFEST)
    served = load_file(target / "model.safetensors")
    assert np.array_equal(served["layers.0.experts.0.w1"], values["layers.0.experts.0.w1"])
    assert not np.array_equal(served["layers.0.experts.1.w1"], values["layers.0.experts.1.w1"])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_replayed_delta_is_the_served_model(tmp_path_factory, seed):
    root = tmp_path_factory.mktemp("replay")
    values = model(MANIFEST, seed)
    base, _ = seeded(root, MANIFEST, values)
    deltas = [
        pushed(root, number, MANIFEST, [number], weight=1 / 3, seed=seed + 1 + number)[0]
        for number in range(3)
    ]
    target, written = committed(root, base, deltas, MANIFEST)
    sent = load_file(target / "delta.safetensors")
    for name in MANIFEST.names:
        replayed = values[name] + sent[name] if name in sent else values[name]
        assert hashlib.sha256(encode(replayed)).hexdigest() == written.tensor_hashes[name]


def test_overflow_is_refused_and_named(tmp_path):
    values = {name: np.full_like(v, 3e38) for name, v in model(MANIFEST, 0).items()}
    base, _ = seeded(tmp_path, MANIFEST, values)
    path = payload(tmp_path / "push", {n: v for n, v in values.items() if "experts" not in n})
    huge = delta_of(path, MANIFEST.shared(), weight=1.0, experts=())
    with pytest.raises(DivergedError, match=r"embedding\.weight"):
        committed(tmp_path, base, [huge], MANIFEST)


def test_full_disk_names_path_and_bytes(tmp_path):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    values = model(MANIFEST, 0)
    path = payload(tmp_path / "seed", values)
    with pytest.raises(DiskFullError, match=r"model\.safetensors .needs 144 bytes"):
        write_seed(path, MANIFEST, target=tmp_path, disk=Disk(fsync=full))


# Versions.


def record(version: int, **files: str) -> CommitRecord:
    each = Contribution(
        peer=A, session="s", pushes=("ab",), weight=1.0, experts=(0,), steps=1, tokens=2, loss=0.5
    )
    return CommitRecord(
        version=version,
        job_uid="job",
        incarnation=1,
        epoch=3,
        global_tokens=10 * version,
        model_sha256="m",
        files=files,
        contributions=(each,),
        leases={A: (Range(0, 4),)},
        routed={0: Routed(granted_epoch=1, tokens=7)},
    )


def publish(versions: Versions, *numbers: int) -> None:
    for number in numbers:
        path = versions.create(number)
        for name in ("model.safetensors", "delta.safetensors"):
            (path / name).write_bytes(NO_TENSORS)
        sha = hashlib.sha256(NO_TENSORS).hexdigest()
        files = {"model.safetensors": sha, "delta.safetensors": sha}
        versions.publish(record(number, **files), {"t": "h"}, {})


def test_record_survives_the_disk(tmp_path):
    versions = Versions(tmp_path, DISK)
    publish(versions, 0, 1)
    kept = versions.record(1)
    assert kept == record(1, **kept.files)
    assert versions.head() == 1
    assert versions.record(2) is None


def test_retention_keeps_snapshots_checkpoints_deltas_and_every_record(tmp_path):
    versions = Versions(tmp_path, DISK)
    publish(versions, *range(13))
    versions.clean(Retention(every_rounds=5, keep_last=2))

    def having(name):
        return [n for n in range(13) if (versions.path(n) / name).exists()]

    assert having("model.safetensors") == [5, 10, 11, 12]
    assert having("delta.safetensors") == [9, 10, 11, 12]
    assert having("commit.json") == list(range(13))


def test_directory_above_head_is_the_rest_of_a_crash(tmp_path):
    versions = Versions(tmp_path, DISK)
    publish(versions, 0)
    versions.create(1)
    versions.remove_unpublished()
    assert not versions.path(1).exists()
    assert versions.path(0).exists()


def test_retention_leaves_a_version_in_the_making_alone(tmp_path):
    versions = Versions(tmp_path, DISK)
    publish(versions, 0)
    versions.create(1)
    versions.clean(Retention(every_rounds=1, keep_last=3))
    assert versions.path(1).exists()


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize("name", ["model.safetensors", "delta.safetensors"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: flipped(data, 0),
        lambda data: flipped(data, 7),
        lambda data: flipped(data, 60),
        lambda data: flipped(data, len(data) // 2),
        lambda data: flipped(data, len(data) - 1),
        lambda data: data[:-1],
        lambda data: data[:5],
        lambda data: data + b"x",
    ],
    ids=["length", "absurd length", "header", "tensor", "end", "cut", "cut in header", "longer"],
)
def test_changed_byte_is_a_fault(tmp_path, name, damage):
    base, _ = seeded(tmp_path, MANIFEST, model(MANIFEST, 0))
    delta, _ = pushed(tmp_path, 1, MANIFEST, [0, 1], weight=1.0)
    versions = Versions(tmp_path, DISK)
    making = Making(base=base, target=versions.create(1), manifest=MANIFEST, disk=DISK)
    written = write_version([delta], making)
    versions.publish(record(1, **written.files), written.tensor_hashes, written.frame_hashes)
    assert versions.fault(1) == ""
    file = versions.path(1) / name
    file.write_bytes(damage(file.read_bytes()))
    fault = versions.fault(1)
    assert name in fault
    assert "damaged" in fault


def test_model_that_is_gone_is_a_fault(tmp_path):
    versions = Versions(tmp_path, DISK)
    publish(versions, 0)
    assert versions.fault(0) == ""
    (versions.path(0) / "model.safetensors").unlink()
    assert "model.safetensors" in versions.fault(0)


def test_file_of_other_tensors_is_not_read(tmp_path):
    base, _ = seeded(tmp_path, MANIFEST, model(MANIFEST, 0))
    with pytest.raises(VolumeError, match="damaged"):
        TensorReader.of_safetensors(base / "model.safetensors", BIG.tensors)
