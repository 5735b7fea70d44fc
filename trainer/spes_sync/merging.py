"""A merge of the experts at a commit: their new values wait in a scratch file to be written.

A version is written by name, but merged matrix by matrix over all experts of a layer. So the
experts as the peers leave them go to a scratch file beside the version, are merged there in place,
and are read from there when their turn has come. The file is no part of the version; what a crash
leaves of it is removed with the version's directory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Protocol, Self

import numpy as np

from spes_sync.codec import Array, encode
from spes_sync.disk import Disk, reports_full
from spes_sync.manifest import SHARED, Manifest, TensorSpec
from spes_sync.merge import MergeStep, merge_experts
from spes_sync.payloads import pieces
from spes_sync.quantize import PIECE_ELEMENTS
from spes_sync.tensorfile import TensorReader

_SCRATCH = "merging.bin"


class Model(Protocol):
    """The version before."""

    def read(self, tensor: TensorSpec, start: int, out: Array) -> None:
        """Fill `out` with the tensor's elements from `start` on."""


class MergedExperts:
    """All experts of a model after one merge."""

    def __init__(self, model: Model, manifest: Manifest, *, directory: Path, disk: Disk) -> None:
        """Nothing is merged yet; the scratch file goes to `directory`."""
        self._model = model
        self._experts = tuple(tensor for tensor in manifest if tensor.expert != SHARED)
        self._path = directory / _SCRATCH
        self._disk = disk
        self._reader: TensorReader | None = None

    def merge(
        self, step: MergeStep, changes: Callable[[TensorSpec], Iterable[Array] | None]
    ) -> None:
        """Merge the experts as they are after `changes`, each given piece by piece.

        Raises:
            DiskFullError: no space left for the scratch file.
            ProtocolError: the experts of a layer are not alike.
        """
        num_bytes = sum(tensor.num_bytes for tensor in self._experts)
        with reports_full(self._path, num_bytes), self._path.open("wb", buffering=0) as file:
            for tensor in self._experts:
                for value in self._changed(tensor, changes(tensor)):
                    _write_all(file.fileno(), encode(value))
            self._reader = TensorReader.of_payload(self._path, self._experts)
            offsets = dict(zip(self._experts, _offsets(self._experts), strict=True))
            by_name = {tensor.name: tensor for tensor in self._experts}
            merged = merge_experts(by_name, lambda name: self._whole(by_name[name]), step)
            with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is not served
                for name, value in merged:
                    os.lseek(file.fileno(), offsets[by_name[name]], os.SEEK_SET)
                    _write_all(file.fileno(), encode(value))
        self._disk.reached("experts-merged")

    def steps(self, tensor: TensorSpec) -> Iterator[Array]:
        """Yield the difference of an expert's tensor to the version before, piece by piece."""
        assert self._reader is not None, "merge first"
        old, new = np.empty((2, PIECE_ELEMENTS), np.float32)
        for start, size in pieces(tensor):
            self._model.read(tensor, start, old[:size])
            self._reader.read(tensor, start, new[:size])
            with np.errstate(over="ignore", invalid="ignore"):
                new[:size] -= old[:size]
            yield new[:size]

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Remove the scratch file."""
        if self._reader is not None:
            self._reader.close()
        self._path.unlink(missing_ok=True)

    def _changed(self, tensor: TensorSpec, changes: Iterable[Array] | None) -> Iterator[Array]:
        value = np.empty(PIECE_ELEMENTS, np.float32)
        unchanged: Iterable[Array | None] = repeat(None)
        for (start, size), change in zip(pieces(tensor), changes or unchanged, strict=False):
            self._model.read(tensor, start, value[:size])
            if change is not None:
                with np.errstate(over="ignore"):
                    value[:size] += change
            yield value[:size]

    def _whole(self, tensor: TensorSpec) -> Array:
        assert self._reader is not None
        value = np.empty(tensor.num_elements, np.float32)
        for start, size in pieces(tensor):
            self._reader.read(tensor, start, value[start : start + size])
        return value.reshape(tensor.shape)


def _offsets(tensors: Iterable[TensorSpec]) -> Iterator[int]:
    offset = 0
    for tensor in tensors:
        yield offset
        offset += tensor.num_bytes


def _write_all(handle: int, data: memoryview) -> None:
    while data:
        data = data[os.write(handle, data) :]
