"""DiLoCo's outer step with lossy codecs both ways: what is dropped is owed, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders.payload_hashes import hashes_in
from safetensors.numpy import load_file
from spes_sync.aggregate import Delta, write_seed, write_version
from spes_sync.codec import encode
from spes_sync.disk import Disk
from spes_sync.downlink import Making, VersionFiles
from spes_sync.manifest import Manifest, TensorSpec
from spes_sync.outer import OuterStep
from spes_sync.quantize import Codec, encode_with_residual, encoded_bytes

SIZE = 5000  # a block and a short one
PSI = "embedding.weight"
MANIFEST = Manifest((TensorSpec(name=PSI, shape=(SIZE,)),))
DISK = Disk(fsync=lambda _: None)
OUTER = OuterStep(learning_rate=0.7, momentum=0.9)
ROUNDS, PEERS = 6, 3


class Pusher:
    """A peer that trains at random and keeps what its codec drops."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.owed = np.zeros(SIZE, np.float32)
        self.trained, self.arrived = np.zeros(SIZE), np.zeros(SIZE)

    def push(self, path: Path, codec: Codec) -> tuple[Delta, np.ndarray]:
        delta = (0.01 * self._random.standard_normal(SIZE)).astype(np.float32)
        data = bytearray(encoded_bytes(codec, SIZE))
        sent = encode_with_residual(codec, delta, self.owed, data)
        self.owed = sent.residual
        self.trained += delta
        self.arrived += sent.decoded
        path.write_bytes(data)
        return Delta(
            path=path,
            tensors=MANIFEST.tensors,
            weight=1 / PEERS,
            experts=frozenset(),
            hashes=hashes_in(path, MANIFEST.tensors, codec),
            codec=codec,
        ), sent.decoded


def commit(root: Path, number: int, deltas: list[Delta], codec: Codec) -> VersionFiles:
    target = root / str(number)
    target.mkdir()
    making = Making(
        base=root / str(number - 1),
        target=target,
        manifest=MANIFEST,
        disk=DISK,
        downlink=codec,
        outer=OUTER,
    )
    return write_version(deltas, making)


@pytest.mark.parametrize("codec", [Codec.BF16, Codec.INT8, Codec.UINT8], ids=str)
def test_lossy_outer_steps_are_the_exact_ones_less_what_is_owed(tmp_path, codec):
    start = np.ones(SIZE, np.float32)
    (tmp_path / "seed").write_bytes(encode(start))
    (tmp_path / "0").mkdir()
    write_seed(tmp_path / "seed", MANIFEST, target=tmp_path / "0", disk=DISK)
    peers = [Pusher(seed) for seed in range(PEERS)]
    exact, velocity = start.astype(float), np.zeros(SIZE)
    for number in range(1, ROUNDS + 1):
        pushed = [peer.push(tmp_path / f"push-{i}", codec) for i, peer in enumerate(peers)]
        written = commit(tmp_path, number, [delta for delta, _ in pushed], codec)
        mean = sum(arrived.astype(float) for _, arrived in pushed) / PEERS
        velocity = OUTER.momentum * velocity - mean
        exact += OUTER.learning_rate * (mean - OUTER.momentum * velocity)
        served = load_file(tmp_path / str(number) / "model.safetensors")[PSI]
        owed = load_file(tmp_path / str(number) / "residual.safetensors")[PSI]
        np.testing.assert_allclose(served + owed.astype(float), exact, atol=1e-6)
        assert 0 < np.abs(served - exact).max() < 1e-3
        assert 0 < written.frame.error < 0.02
    for peer in peers:
        np.testing.assert_allclose(peer.arrived + peer.owed, peer.trained, atol=1e-6)


def test_lossless_frame_says_that_nothing_was_dropped(tmp_path):
    (tmp_path / "seed").write_bytes(encode(np.ones(SIZE, np.float32)))
    (tmp_path / "0").mkdir()
    write_seed(tmp_path / "seed", MANIFEST, target=tmp_path / "0", disk=DISK)
    delta, _ = Pusher(0).push(tmp_path / "push", Codec.INT8)
    written = commit(tmp_path, 1, [delta], Codec.FP32)
    assert (written.frame.error, written.frame.compression) == (0.0, 1.0)
