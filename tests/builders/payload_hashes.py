"""Hashes of payloads that tests make, as both sides compute them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from spes_sync.hashes import PayloadHash
from spes_sync.manifest import TensorSpec
from spes_sync.payloads import all_in
from spes_sync.quantize import Codec


def hashes_in(
    payload: Path | bytes, tensors: Iterable[TensorSpec], codec: Codec = Codec.FP32
) -> dict[str, str]:
    """SHA-256 of each tensor of a payload."""
    return _hashed(payload, tensors, codec).by_tensor


def root_of(payload: bytes, tensors: Iterable[TensorSpec], codec: Codec = Codec.FP32) -> str:
    """What its End says."""
    return _hashed(payload, tensors, codec).hexdigest()


def _hashed(payload: Path | bytes, tensors: Iterable[TensorSpec], codec: Codec) -> PayloadHash:
    tensors = tuple(tensors)
    digest = PayloadHash(tensors, all_in(codec, tensors))
    digest.update(payload.read_bytes() if isinstance(payload, Path) else payload)
    return digest
