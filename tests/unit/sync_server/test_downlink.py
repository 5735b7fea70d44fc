"""What goes down: relayed bytes, coded values, and what a lossy downlink owes from then on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from builders.payload_hashes import hashes_in
from builders.toy_learner import PSI, phi, toy_manifest
from safetensors.numpy import load_file
from spes_proto.v1 import sync_pb2
from spes_sync.aggregate import Delta, write_seed, write_version
from spes_sync.codec import encode, tensor_sha256
from spes_sync.disk import Disk
from spes_sync.downlink import Making, VersionFiles
from spes_sync.errors import DivergedError, ProtocolError
from spes_sync.frames import iter_chunks
from spes_sync.manifest import Manifest
from spes_sync.merge import MergeStep
from spes_sync.quantize import PIECE_ELEMENTS, Codec, decode, encoded_bytes
from spes_sync.quantize import encode as encode_in
from spes_sync.spools import Receiver

SIZE = 5000  # a block and a short one
MANIFEST = toy_manifest(num_experts=2, size=SIZE)
DISK = Disk(fsync=lambda _: None)
LOSSY = pytest.mark.parametrize("codec", [Codec.BF16, Codec.INT8, Codec.UINT8], ids=str)
Values = dict[str, np.ndarray]


def values_of(seed: int, *, manifest: Manifest = MANIFEST, scale: float = 1.0) -> Values:
    random = np.random.default_rng(seed)
    return {t.name: (scale * random.standard_normal(t.shape)).astype(np.float32) for t in manifest}


def bytes_in(codec: Codec, value: np.ndarray) -> bytes:
    out = bytearray(encoded_bytes(codec, value.size))
    encode_in(codec, value, out)
    return bytes(out)


def arrived(codec: Codec, value: np.ndarray) -> np.ndarray:
    out = np.empty_like(value)
    decode(codec, bytes_in(codec, value), out)
    return out


@dataclass
class Server:
    """Versions of a model in a directory, one after another."""

    root: Path
    downlink: Codec
    manifest: Manifest = MANIFEST
    version: int = 0

    def path(self, version: int) -> Path:
        path = self.root / str(version)
        path.mkdir(exist_ok=True)
        return path

    def seed(self, values: Values) -> None:
        payload = self.root / "seed"
        payload.write_bytes(b"".join(bytes(encode(values[name])) for name in sorted(values)))
        write_seed(payload, self.manifest, target=self.path(0), disk=DISK)

    def delta(
        self, values: Values, *, codec: Codec = Codec.FP32, experts=(0, 1), weight: float = 1.0
    ) -> Delta:
        tensors = self.manifest.trained_by(experts)
        path = self.root / f"push-{self.version}-{min(experts, default=9)}"
        path.write_bytes(b"".join(bytes_in(codec, values[tensor.name]) for tensor in tensors))
        return Delta(
            path=path,
            tensors=tensors,
            weight=weight,
            experts=frozenset(experts),
            hashes=hashes_in(path, tensors, codec),
            codec=codec,
        )

    def commit(self, *deltas: Delta, merge: MergeStep | None = None) -> VersionFiles:
        making = Making(
            base=self.path(self.version),
            target=self.path(self.version + 1),
            manifest=self.manifest,
            disk=DISK,
            downlink=self.downlink,
        )
        self.version += 1
        return write_version(deltas, replace(making, merge=merge))

    def file(self, name: str) -> Values:
        path = self.path(self.version) / f"{name}.safetensors"
        return load_file(path) if path.exists() else {}

    def theta(self, name: str) -> np.ndarray:
        owed = self.file("residual").get(name, np.float32(0))
        return self.file("model")[name].astype(float) + owed


def seeded(root: Path, downlink: Codec, **more) -> Server:
    server = Server(root, downlink, **more)
    server.seed(values_of(0, manifest=server.manifest))
    return server


@LOSSY
def test_an_expert_is_relayed_in_its_owners_bytes(tmp_path, codec):
    server, pushed = seeded(tmp_path, Codec.INT8), values_of(1, scale=0.01)
    before = server.file("model")
    server.commit(server.delta(pushed, codec=codec))
    payload = (tmp_path / "push-0-0").read_bytes()
    assert (tmp_path / "1" / "delta.safetensors").read_bytes().count(
        bytes_in(codec, pushed[phi(1)])
    ) == 1
    assert bytes_in(codec, pushed[phi(1)]) in payload
    served = server.file("model")
    for name in (phi(0), phi(1)):
        assert np.array_equal(served[name], before[name] + arrived(codec, pushed[name]))
    assert set(server.file("residual")) == {PSI}


@LOSSY
def test_shared_tensors_are_coded_once_and_what_is_dropped_is_owed(tmp_path, codec):
    server = seeded(tmp_path, codec)
    expected = server.file("model")[PSI].astype(float)
    for number in range(1, 6):
        a, b = values_of(number, scale=0.01), values_of(number + 50, scale=0.01)
        written = server.commit(
            server.delta(a, experts=(0,), weight=0.25), server.delta(b, experts=(1,), weight=0.75)
        )
        expected += np.float32(0.25) * a[PSI] + np.float32(0.75) * b[PSI]
        owed = server.file("residual")[PSI]
        assert 0 < np.abs(owed).max() < 0.01 * 5 / 100
        assert 0 < written.frame.error < 0.02
        assert written.frame.compression > 1
        np.testing.assert_allclose(server.theta(PSI), expected, atol=1e-6)
    assert np.abs(server.file("model")[PSI] - expected).max() > 1e-5


@LOSSY
def test_a_peer_that_adds_the_frame_holds_the_served_bits(tmp_path, codec):
    server = seeded(tmp_path, codec)
    before = server.file("model")
    written = server.commit(server.delta(values_of(1)))
    frame = (tmp_path / "1" / "delta.safetensors").read_bytes()
    size = encoded_bytes(codec, SIZE)
    sent = np.empty(SIZE, np.float32)
    decode(codec, frame[-size:], sent)  # psi is the last by name
    assert tensor_sha256(before[PSI] + sent) == written.tensor_hashes[PSI]


def test_nobody_s_push_leaves_what_is_owed(tmp_path):
    server = seeded(tmp_path, Codec.INT8)
    server.commit(server.delta(values_of(1)))
    owed, model = server.file("residual"), server.file("model")
    server.commit()
    assert np.array_equal(server.file("residual")[PSI], owed[PSI])
    assert np.array_equal(server.file("model")[PSI], model[PSI])


def test_a_lossless_downlink_pays_all_and_owes_nothing(tmp_path):
    server = seeded(tmp_path, Codec.INT8)
    server.commit(server.delta(values_of(1)))
    theta, more = server.theta(PSI), values_of(2)
    server.downlink = Codec.FP32
    written = server.commit(server.delta(more))
    assert "residual.safetensors" not in written.files
    np.testing.assert_allclose(server.file("model")[PSI], theta + more[PSI], atol=1e-6)


def test_merged_experts_are_coded_and_owed_like_shared_ones(tmp_path):
    server = seeded(tmp_path, Codec.INT8)
    pushed = values_of(1, scale=0.01)
    theta = {phi(e): server.theta(phi(e)) + pushed[phi(e)] for e in (0, 1)}
    server.commit(server.delta(pushed), merge=MergeStep(alpha=0.5, num_donors=1))
    middle = (theta[phi(0)] + theta[phi(1)]) / 2
    assert set(server.file("residual")) == {PSI, phi(0), phi(1)}
    for expert in (0, 1):
        np.testing.assert_allclose(server.theta(phi(expert)), middle, atol=1e-6)
    more = values_of(2, scale=0.01)
    owed = server.file("residual")[phi(0)]
    server.commit(server.delta(more))  # no merge: relayed, and still owed
    assert np.array_equal(server.file("residual")[phi(0)], owed)
    np.testing.assert_allclose(server.theta(phi(0)), middle + more[phi(0)], atol=1e-6)


@LOSSY
def test_tensors_of_several_pieces_are_coded_as_one(tmp_path, codec):
    manifest = toy_manifest(num_experts=1, size=PIECE_ELEMENTS + SIZE)
    server = seeded(tmp_path, codec, manifest=manifest)
    before, pushed = server.file("model"), values_of(1, manifest=manifest)
    server.commit(server.delta(pushed, experts=(0,)))
    moved = before[PSI] + arrived(codec, pushed[PSI])
    assert np.array_equal(server.file("model")[PSI], moved)


def test_a_step_too_large_for_the_codec_is_named(tmp_path):
    server = seeded(tmp_path, Codec.BF16)
    huge = values_of(1) | {PSI: np.full(SIZE, 3.4e38, np.float32)}
    with pytest.raises(DivergedError, match="psi cannot be served: a value cannot be sent in BF16"):
        server.commit(server.delta(huge))


# Payloads on their way in.


def receive(path: Path, payload: bytes, codec: Codec) -> None:
    receiver = Receiver(path / "part", MANIFEST.tensors, codec)
    try:
        for part in iter_chunks(sync_pb2.PushPart, [payload]):
            receiver.write(part.chunk)
    finally:
        receiver.discard()


def damaged(codec: Codec, offset: int, data: bytes) -> bytes:
    """A payload whose second tensor has these bytes at this offset."""
    values = values_of(1)
    parts = [bytearray(bytes_in(codec, values[name])) for name in MANIFEST.names]
    parts[1][offset : offset + len(data)] = data
    return b"".join(parts)


@pytest.mark.parametrize(
    ("codec", "offset", "data"),
    [
        (Codec.INT8, 0, b"\x00\x00\xc0\x7f"),
        (Codec.INT8, 4100, b"\x00\x00\x80\x7f"),
        (Codec.INT8, 4100, b"\x00\x00\x80\xbf"),
        (Codec.BF16, 2 * SIZE - 2, b"\x80\x7f"),
        (Codec.FP32, 4 * SIZE - 4, b"\x00\x00\xc0\x7f"),
    ],
    ids=["NaN scale", "infinite scale", "negative scale", "BF16 infinity", "NaN"],
)
def test_a_value_that_is_not_finite_is_refused_by_name(tmp_path, codec, offset, data):
    with pytest.raises(ProtocolError, match=rf"{phi(1)} is not finite") as refused:
        receive(tmp_path, damaged(codec, offset, data), codec)
    assert refused.value.reason == sync_pb2.NOT_FINITE


@pytest.mark.parametrize("codec", Codec, ids=str)
def test_what_is_finite_is_taken_and_more_is_not(tmp_path, codec):
    receive(tmp_path, damaged(codec, 0, b""), codec)
    with pytest.raises(ProtocolError, match="more bytes than announced"):
        receive(tmp_path, damaged(codec, 0, b"") + b"\0", codec)
