"""From verified pushes to the next version, tensor by tensor. No state, no network.

    shared tensor   theta' = theta + sum over peers of p_i m_i, in float32 and in peer-id order
    expert          theta' = theta + m of its owner
    not pushed      theta' = theta

Then, with DiLoCo, an outer step along that sum; with SPES, when it is due, a merge of the experts.
How theta' goes down to the peers is the downlink's matter. Peer-id order makes the result
independent of who came first. Memory is a few pieces of a tensor, not a model.
(SPES, arXiv 2602.11543, section 3.3: shared parameters are averaged, experts are their owner's.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

import numpy as np

from spes_sync.codec import Array, encode
from spes_sync.disk import Disk
from spes_sync.downlink import Making, Theta, VersionFiles, VersionWriter
from spes_sync.hashes import ModelHashes, root_sha256
from spes_sync.manifest import SHARED, Manifest, TensorSpec
from spes_sync.merging import MergedExperts
from spes_sync.outer import OuterState
from spes_sync.payloads import all_in, pieces
from spes_sync.quantize import PIECE_ELEMENTS, Codec
from spes_sync.tensorfile import PlainWriter, TensorReader
from spes_sync.versions import MODEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """One verified payload and what of it counts."""

    path: Path
    tensors: tuple[TensorSpec, ...]
    weight: float
    """Of its shared tensors, see `weighing`."""
    experts: frozenset[int]
    hashes: Mapping[str, str]
    """SHA-256 of each tensor's bytes, as verified on arrival."""
    codec: Codec = Codec.FP32

    def counts(self, tensor: TensorSpec) -> bool:
        """Whether its value of a tensor that it holds goes into the version."""
        return self.weight > 0 if tensor.expert == SHARED else tensor.expert in self.experts


# Deltas that count, in peer-id order, with their open payloads.
Pushed = Sequence[tuple[Delta, TensorReader]]


def write_seed(payload: Path, manifest: Manifest, *, target: Path, disk: Disk) -> VersionFiles:
    """Write version 0 from a payload of absolute values.

    Raises:
        DiskFullError: no space left.
    """
    with (
        ModelHashes() as hashes,
        TensorReader.of_payload(payload, manifest) as seed,
        PlainWriter(target / MODEL, manifest.tensors, disk) as model,
    ):
        piece = cycle(np.empty((2, PIECE_ELEMENTS), np.float32))
        for tensor in manifest:
            for start, size in pieces(tensor):
                values = next(piece)[:size]
                seed.read(tensor, start, values)
                hashes.update(encode(values))
                model.write(encode(values))
            hashes.end(tensor.name)
        model.finish("version-model")
        by_tensor = hashes.by_tensor
        return VersionFiles(
            model_sha256=root_sha256(by_tensor.values()),
            tensor_hashes=by_tensor,
            files={MODEL: root_sha256(by_tensor.values(), header=model.header)},
        )


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
        moves = _Moves(making, theta, pushed, files)
        codecs = {name: delta.codec for name, (delta, _) in moves.relayed.items()}
        version = files.enter_context(
            VersionWriter(making, theta, relayed=codecs, coded=moves.coded)
        )
        for tensor in manifest:
            if tensor.name in moves.relayed:
                delta, reader = moves.relayed[tensor.name]
                version.relay(tensor, reader, delta.hashes[tensor.name])
            elif tensor.name in moves.coded:
                version.code(tensor, moves.steps(tensor))
            else:
                version.keep(tensor)
        written = version.close()
        return replace(written, files={**written.files, **moves.close()})


class _Moves:
    """theta' - theta of every tensor that changes, and which of them are just their owner's."""

    def __init__(self, making: Making, theta: Theta, pushed: Pushed, files: ExitStack) -> None:
        """Merge the experts now, if that is due."""
        manifest = making.manifest
        self._terms = {tensor.name: _terms(pushed, tensor) for tensor in manifest}
        self._merged: MergedExperts | None = None
        self._outer: OuterState | None = None
        if making.merge is not None:
            self._merged = files.enter_context(
                MergedExperts(theta, manifest, directory=making.target, disk=making.disk)
            )
            self._merged.merge(making.merge, self._pushed_steps)
        if making.outer is not None:
            self._outer = files.enter_context(
                OuterState(
                    making.outer,
                    manifest,
                    base=making.base,
                    target=making.target,
                    disk=making.disk,
                )
            )
        experts = [tensor.name for tensor in manifest if tensor.expert != SHARED]
        changed = {name for name, terms in self._terms.items() if terms}
        self.relayed: Mapping[str, tuple[Delta, TensorReader]] = {
            name: (self._terms[name][0].delta, self._terms[name][0].reader)
            for name in experts
            if name in changed and self._merged is None
        }
        self.coded = changed.union(experts if self._merged else ()).difference(self.relayed)
        assert self._outer is None or len(self.coded) == len(manifest), "all train everything"

    def steps(self, tensor: TensorSpec) -> Iterator[Array]:
        """How a coded tensor moves, by the piece; each is valid until the next."""
        if self._merged is not None and tensor.expert != SHARED:
            return self._merged.steps(tensor)
        average = _steps(self._terms[tensor.name], tensor)
        return average if self._outer is None else self._outer.steps(tensor, average)

    def close(self) -> Mapping[str, str]:
        """Make durable what the next version needs besides; SHA-256 by file."""
        return self._outer.close() if self._outer is not None else {}

    def _pushed_steps(self, tensor: TensorSpec) -> Iterator[Array] | None:
        terms = self._terms[tensor.name]
        return _steps(terms, tensor) if terms else None


@dataclass(frozen=True, slots=True)
class _Term:
    """One peer's values of one tensor."""

    delta: Delta
    reader: TensorReader
    weight: np.float32


def _terms(pushed: Pushed, tensor: TensorSpec) -> list[_Term]:
    terms = [
        _Term(delta, reader, np.float32(1.0 if tensor.expert != SHARED else delta.weight))
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
