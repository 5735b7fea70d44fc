"""Hashes of payloads: what both sides agree on, however the bytes arrive."""

from __future__ import annotations

import hashlib
import itertools

from builders.payload_hashes import hashes_in, root_of
from builders.toy_learner import toy_manifest
from hypothesis import given
from hypothesis import strategies as st
from spes_sync.hashes import ModelHashes, PayloadHash, root_sha256
from spes_sync.payloads import all_in, payload_bytes, tensor_bytes
from spes_sync.quantize import Codec

TENSORS = toy_manifest(num_experts=3, size=50).tensors
CODECS = st.sampled_from(Codec)


def payload_in(codec: Codec) -> bytes:
    return bytes(index % 251 for index in range(payload_bytes(TENSORS, all_in(codec, TENSORS))))


@given(codec=CODECS, cuts=st.lists(st.integers(0, 800)))
def test_hash_does_not_depend_on_how_the_bytes_are_cut(codec, cuts):
    payload, digest = payload_in(codec), PayloadHash(TENSORS, all_in(codec, TENSORS))
    places = [0, *sorted(min(cut, len(payload)) for cut in cuts), len(payload)]
    for start, end in itertools.pairwise(places):
        digest.update(payload[start:end])
    assert digest.by_tensor == hashes_in(payload, TENSORS, codec)
    assert digest.hexdigest() == root_of(payload, TENSORS, codec)


@given(codec=CODECS)
def test_root_is_the_hash_of_the_tensors_hashes(codec):
    rest, digests = payload_in(codec), b""
    for tensor in TENSORS:
        size = tensor_bytes(tensor, all_in(codec, TENSORS))
        digests += hashlib.sha256(rest[:size]).digest()
        rest = rest[size:]
    assert root_of(payload_in(codec), TENSORS, codec) == hashlib.sha256(digests).hexdigest()


@given(place=st.integers(0, 799))
def test_every_byte_counts(place):
    payload = payload_in(Codec.FP32)
    other = bytearray(payload)
    other[place % len(payload)] ^= 1
    assert root_of(payload, TENSORS) != root_of(bytes(other), TENSORS)


def test_a_model_hashed_beside_its_writing_has_the_same_hashes():
    payload = payload_in(Codec.FP32)
    with ModelHashes() as hashes:
        for tensor, start in zip(TENSORS, range(0, len(payload), 200), strict=True):
            hashes.update(memoryview(payload)[start : start + 120])
            hashes.update(memoryview(payload)[start + 120 : start + 200])
            hashes.end(tensor.name)
        assert hashes.by_tensor == hashes_in(payload, TENSORS)
        assert root_sha256(hashes.by_tensor.values()) == root_of(payload, TENSORS)
