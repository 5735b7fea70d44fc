"""The weights of an export: one safetensors file, or several and an index, in one pass."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from spes_sync.codec import Array, encode, tensor_sha256
from spes_sync.disk import Disk
from spes_sync.export.layout import Row
from spes_sync.hashes import root_sha256
from spes_sync.manifest import TensorSpec
from spes_sync.tensorfile import TensorWriter

# The size above which `transformers` splits a model by default; decimal, as there.
MAX_SHARD_BYTES = 5_000_000_000

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

_BYTES_PER_ELEMENT = 4
# Crash points reported after durable writes.
_WEIGHTS_WRITTEN, _INDEX_WRITTEN = "export-weights", "export-index"


class TensorSource(Protocol):
    """Where tensors come from, one at a time."""

    def read(self, name: str) -> Array:
        """A tensor by our name, as float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenWeights:
    """What was written."""

    model_sha256: str
    """The root of all tensors, those without a place too, in the order of the rows."""
    files: Mapping[str, str]
    """SHA-256 of each weight file."""


def write_weights(
    source: TensorSource,
    rows: Sequence[Row],
    folder: Path,
    disk: Disk,
    *,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> WrittenWeights:
    """Write all tensors of `rows` that have a place; with an index if one file is too small.

    Raises:
        DiskFullError: no space left.
    """
    shards = _named(plan_shards(rows, max_shard_bytes=max_shard_bytes))
    if len(shards) > 1:
        disk.write_json(folder / INDEX, _index(shards), _INDEX_WRITTEN)
    hashes: list[str] = []
    files = {}
    for name, shard in shards.items():
        tensors = tuple(
            TensorSpec(name=row.theirs, shape=row.their_shape) for row in shard if row.theirs
        )
        with TensorWriter(folder / name, tensors, disk) as writer:
            for row in shard:
                value = source.read(row.ours)
                hashes.append(tensor_sha256(value))
                if row.theirs:
                    writer.write(encode(value.T if row.transposed else value))
            files[name] = writer.close(_WEIGHTS_WRITTEN)
    return WrittenWeights(model_sha256=root_sha256(hashes), files=files)


def plan_shards(rows: Sequence[Row], *, max_shard_bytes: int) -> tuple[tuple[Row, ...], ...]:
    """Cut `rows` in order into as few files as fit; a larger tensor gets a file of its own."""
    shards: list[list[Row]] = []
    room = 0
    for row in rows:
        if not shards or _num_bytes(row) > room:
            shards.append([])
            room = max_shard_bytes
        shards[-1].append(row)
        room -= _num_bytes(row)
    return tuple(map(tuple, shards))


def _named(shards: Sequence[tuple[Row, ...]]) -> dict[str, tuple[Row, ...]]:
    if len(shards) == 1:
        return {WEIGHTS: shards[0]}
    return {
        f"model-{number:05d}-of-{len(shards):05d}.safetensors": shard
        for number, shard in enumerate(shards, start=1)
    }


def _index(shards: Mapping[str, Sequence[Row]]) -> dict[str, object]:
    return {
        "metadata": {"total_size": sum(_num_bytes(r) for rows in shards.values() for r in rows)},
        "weight_map": {
            row.theirs: name for name, rows in shards.items() for row in rows if row.theirs
        },
    }


def _num_bytes(row: Row) -> int:
    return math.prod(row.shape) * _BYTES_PER_ELEMENT if row.theirs else 0
