"""From verified pushes to the next version, tensor by tensor. No state, no network.

    shared tensor   theta' = theta + sum over peers of p_i m_i, in float32 and in peer-id order
    expert          theta' = theta + m of its owner
    not pushed      theta' = theta

How theta' goes down to the peers is the downlink's matter. Peer-id order makes the result
independent of who came first. Memory is a few pieces of a tensor, not a model.
(SPES, arXiv 2602.11543, section 4: shared parameters are averaged, experts are their owner's.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spes_sync.codec import Array
from spes_sync.disk import Disk
from spes_sync.downlink import Hashes, Making, Theta, VersionFiles, VersionWriter
from spes_sync.manifest import SHARED, Manifest, TensorSpec
from spes_sync.payloads import all_in, pieces
from spes_sync.quantize import PIECE_ELEMENTS, Codec
from spes_sync.tensorfile import TensorReader, TensorWriter
from spes_sync.versions import MODEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """One verified payload and what of it counts."""

    path: Path
    tensors: tuple[TensorSpec, ...]
    weight: float
    """Of its shared tensors; the weights of a version add up to 1."""
    experts: frozenset[int]

    codec: Codec = Codec.FP32

    def counts(self, tensor: TensorSpec) -> bool:
        """Whether its value of a tensor that it holds goes into the version."""
        return self.weight > 0 if tensor.expert == SHARED else tensor.expert in self.experts


def write_seed(payload: Path, manifest: Manifest, *, target: Path, disk: Disk) -> VersionFiles:
    """Write version 0 from a payload of absolute values.

    Raises:
        DiskFullError: no space left.
    """
    hashes = Hashes()
    with (
        TensorReader.of_payload(payload, manifest) as seed,
        TensorWriter(target / MODEL, manifest.tensors, disk) as model,
    ):
        for tensor in manifest:
            for data in seed.buffers([tensor]):
                model.write(data)
                hashes.update(data)
            hashes.end(tensor)
        return hashes.result({MODEL: model.close("version-model")})


def write_version(deltas: Sequence[Delta], making: Making) -> VersionFiles:
    """Write the version after the base; `deltas` are in peer-id order.

    Raises:
        DiskFullError: no space left.
        DivergedError: a value would not be finite.
    """
    manifest = making.manifest
    with ExitStack() as files:
        theta = Theta(making, files)
        pushed = [(delta, files.enter_context(_reader(delta))) for delta in deltas]
        terms = {tensor.name: _terms(pushed, tensor) for tensor in manifest}
        relayed = {
            tensor.name: terms[tensor.name][0].reader
            for tensor in manifest
            if tensor.expert != SHARED and terms[tensor.name]
        }
        codecs = {name: reader.codec(manifest[name]) for name, reader in relayed.items()}
        coded = [name for name, each in terms.items() if each and name not in relayed]
        version = files.enter_context(VersionWriter(making, theta, relayed=codecs, coded=coded))
        for tensor in manifest:
            if tensor.name in relayed:
                version.relay(tensor, relayed[tensor.name])
            elif terms[tensor.name]:
                version.code(tensor, _steps(terms[tensor.name], tensor))
            else:
                version.keep(tensor)
        return version.close()


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


def _reader(delta: Delta) -> TensorReader:
    codecs = all_in(delta.codec, delta.tensors)
    return TensorReader.of_payload(delta.path, delta.tensors, codecs=codecs)


def _steps(terms: Sequence[_Term], tensor: TensorSpec) -> Iterator[Array]:
    """The weighted sum of what was pushed, by the piece; each is valid until the next."""
    step, one = np.empty((2, PIECE_ELEMENTS), np.float32)
    for start, size in pieces(tensor):
        for index, term in enumerate(terms):
            into = one if index else step
            term.reader.read(tensor, start, into[:size])
            into[:size] *= term.weight
            if index:
                step[:size] += one[:size]
        yield step[:size]
