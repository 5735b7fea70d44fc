"""From verified pushes to the next version, tensor by tensor. No state, no network.

    shared tensor   d = sum over peers of p_i m_i, in float32 and in peer-id order;  S' = fl(S + d)
    expert          d = m of its owner;                                             S' = fl(S + d)
    not pushed      S' = S

S' is *defined* as fl(S + d) of the delta that is sent, so who adds the delta to S and who pulls S'
hold the same bits; the owner of an expert computes fl(B + m) by itself. Peer-id order makes the
result independent of who came first. Memory is a few pieces of a tensor, not a model.
(SPES, arXiv 2602.11543, section 4: shared parameters are averaged, experts are their owner's.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spes_sync.codec import Array, encode
from spes_sync.disk import Disk
from spes_sync.errors import DivergedError
from spes_sync.manifest import SHARED, Manifest, TensorSpec
from spes_sync.tensorfile import PIECE_ELEMENTS, TensorReader, TensorWriter, pieces
from spes_sync.versions import DELTA, MODEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """One verified payload and what of it counts."""

    path: Path
    tensors: tuple[TensorSpec, ...]
    weight: float
    """Of its shared tensors; the weights of a version add up to 1."""
    experts: frozenset[int]

    def counts(self, tensor: TensorSpec) -> bool:
        """Whether its value of a tensor that it holds goes into the version."""
        return self.weight > 0 if tensor.expert == SHARED else tensor.expert in self.experts


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """What was written."""

    model_sha256: str
    tensor_hashes: Mapping[str, str]
    files: Mapping[str, str]


def write_seed(payload: Path, manifest: Manifest, *, target: Path, disk: Disk) -> Aggregate:
    """Write version 0 from a payload of absolute values.

    Raises:
        DiskFullError: no space left.
    """
    hashes = _Hashes()
    with (
        TensorReader.of_payload(payload, manifest) as seed,
        TensorWriter(target / MODEL, manifest.tensors, disk) as model,
    ):
        for tensor in manifest:
            for data in seed.buffers([tensor]):
                model.write(data)
                hashes.update(data)
            hashes.end(tensor)
        return hashes.aggregate({MODEL: model.close("version-model")})


def write_version(
    base: Path, deltas: Sequence[Delta], manifest: Manifest, *, target: Path, disk: Disk
) -> Aggregate:
    """Write the version after the one in directory `base`; `deltas` are in peer-id order.

    Raises:
        DiskFullError: no space left.
        DivergedError: a value would not be finite.
    """
    hashes = _Hashes()
    with ExitStack() as files:
        served = files.enter_context(TensorReader.of_safetensors(base / MODEL, manifest.tensors))
        pushed = [
            (delta, files.enter_context(TensorReader.of_payload(delta.path, delta.tensors)))
            for delta in deltas
        ]
        terms = {tensor.name: _terms(pushed, tensor) for tensor in manifest}
        changed = tuple(tensor for tensor in manifest if terms[tensor.name])
        model = files.enter_context(TensorWriter(target / MODEL, manifest.tensors, disk))
        delta = files.enter_context(TensorWriter(target / DELTA, changed, disk))
        for tensor in manifest:
            for old, step in _moves(served, terms[tensor.name], tensor):
                new = old
                if step is not None:
                    delta.write(encode(step))
                    new = _moved(old, step, tensor)
                model.write(encode(new))
                hashes.update(encode(new))
            hashes.end(tensor)
        return hashes.aggregate(
            {MODEL: model.close("version-model"), DELTA: delta.close("version-delta")}
        )


@dataclass(frozen=True, slots=True)
class _Term:
    """One peer's values of one tensor."""

    reader: TensorReader
    weight: np.float32


def _terms(pushed: Sequence[tuple[Delta, TensorReader]], tensor: TensorSpec) -> list[_Term]:
    terms = [
        _Term(reader, np.float32(1.0 if tensor.expert != SHARED else delta.weight))
        for delta, reader in pushed
        if tensor.name in reader and delta.counts(tensor)
    ]
    assert tensor.expert == SHARED or len(terms) <= 1, "an expert has one owner"
    return terms


def _moves(
    served: TensorReader, terms: Sequence[_Term], tensor: TensorSpec
) -> Iterator[tuple[Array, Array | None]]:
    """Each piece of a tensor: the served values, and the delta to add (None: nobody pushed it)."""
    old, step, one = np.empty((3, PIECE_ELEMENTS), np.float32)
    for start, size in pieces(tensor):
        served.read(tensor, start, old[:size])
        for index, term in enumerate(terms):
            into = one if index else step
            term.reader.read(tensor, start, into[:size])
            into[:size] *= term.weight
            if index:
                step[:size] += one[:size]
        yield old[:size], step[:size] if terms else None


def _moved(old: Array, step: Array, tensor: TensorSpec) -> Array:
    with np.errstate(over="ignore"):
        old += step
    if not np.isfinite(old).all():
        raise DivergedError(f"{tensor.name} would not be finite; the round's pushes are too large")
    return old


class _Hashes:
    """Hashes of each tensor and of the model, over the same bytes."""

    def __init__(self) -> None:
        self._model = hashlib.sha256()
        self._tensor = hashlib.sha256()
        self._tensors: dict[str, str] = {}

    def update(self, data: memoryview) -> None:
        self._model.update(data)
        self._tensor.update(data)

    def end(self, tensor: TensorSpec) -> None:
        self._tensors[tensor.name] = self._tensor.hexdigest()
        self._tensor = hashlib.sha256()

    def aggregate(self, files: Mapping[str, str]) -> Aggregate:
        return Aggregate(
            model_sha256=self._model.hexdigest(), tensor_hashes=self._tensors, files=files
        )
