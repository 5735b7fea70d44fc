"""A served model as a Hugging Face folder: `export_model`.

One pass, one tensor in memory: the weights are read by our sorted names, hashed, renamed and
written. Called by the sync server when a job completes and by `spes-sync export`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spes_api.job import TokenizerSpec
from spes_api.model import ModelConfig

from spes_sync.errors import ExportError
from spes_sync.export.folder import MARKER, replaced_folder
from spes_sync.export.layout import Row, tensor_rows
from spes_sync.export.settings import Layout, generation_settings, layout_of, to_hugging_face
from spes_sync.export.tensorfile import Array, TensorFile, write_tensor_file
from spes_sync.export.tokenizer import tokenizer_files

logger = logging.getLogger(__name__)

# The size above which `transformers` splits a model by default; decimal, as there.
MAX_SHARD_BYTES = 5_000_000_000
_BYTES_PER_ELEMENT = 4

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """What an export wrote."""

    folder: Path
    layout: Layout
    num_parameters: int
    num_bytes: int
    """Of the weight files."""
    model_sha256: str
    """Over the model's bytes in the order of our names, as in the journal."""


def export_model(
    model: Path,
    config: ModelConfig,
    tokenizer: TokenizerSpec,
    to: Path,
    *,
    sequence_tokens: int,
) -> ExportResult:
    """Write `model` to the folder `to`, which appears whole or not at all.

    Args:
        model: A safetensors file with our tensor names, float32.
        config: The shape of that model.
        tokenizer: How the job turned text into tokens.
        to: New, empty, or an earlier export, which is replaced.
        sequence_tokens: The length the model was trained on: the longest context it knows.

    Raises:
        ExportError: the model is not of that shape, has no such layout, or `to` holds other files.
        DiskFullError: no space left; `to` is as it was.
    """
    to = to.resolve()
    layout, rows = layout_of(config), tensor_rows(config)
    documents = tokenizer_files(tokenizer, vocabulary=config.vocabulary)
    documents["config.json"] = to_hugging_face(config, sequence_tokens=sequence_tokens)
    documents["generation_config.json"] = generation_settings()
    source = TensorFile.open(model)
    check_shapes(source.shapes, {row.ours: row.shape for row in rows}, str(model))
    with replaced_folder(to) as folder:
        num_bytes, sha256 = write_weights(source, rows, folder)
        documents[MARKER] = {
            "model": config.model_dump(by_alias=True, exclude_none=True, mode="json"),
            "modelSha256": sha256,
        }
        for name, content in documents.items():
            _write_json(folder / name, content)
    logger.info("model exported folder=%s layout=%s bytes=%d", to, layout, num_bytes)
    return ExportResult(
        folder=to,
        layout=layout,
        num_parameters=config.sizes.total,
        num_bytes=num_bytes,
        model_sha256=sha256,
    )


def write_weights(
    source: TensorFile, rows: Sequence[Row], folder: Path, *, max_shard_bytes: int = MAX_SHARD_BYTES
) -> tuple[int, str]:
    """Write all tensors of `rows`, with an index if one file is too small for them.

    Returns:
        The size of the files, and the SHA-256 of the model in the order of `rows`.
    """
    shards = plan_shards(rows, max_shard_bytes=max_shard_bytes)
    names = [WEIGHTS]
    if len(shards) > 1:
        names = [
            f"model-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, len(shards) + 1)
        ]
        weight_map = {
            row.theirs: n for n, shard in zip(names, shards, strict=True) for row in shard
        }
        total = sum(_num_bytes(row) for row in rows)
        _write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": weight_map})
    digest = hashlib.sha256()

    def values(shard: Sequence[Row]) -> Iterator[tuple[str, Array]]:
        for row in shard:
            value = source.read(row.ours)
            digest.update(value.reshape(-1).data.cast("B"))
            yield row.theirs, value.T if row.transposed else value

    num_bytes = sum(
        write_tensor_file(
            folder / name, {row.theirs: row.their_shape for row in shard}, values(shard)
        )
        for name, shard in zip(names, shards, strict=True)
    )
    return num_bytes, digest.hexdigest()


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


def check_shapes(
    got: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]], where: str
) -> None:
    """Refuse a set of tensors that is not exactly the expected one.

    Raises:
        ExportError: names the first tensor that is missing, unknown or of another shape.
    """
    for name in sorted(expected.keys() | got.keys()):
        if got.get(name) != expected.get(name):
            raise ExportError(
                f"{where}: {name} (got {_shape_text(got.get(name))}, expected "
                f"{_shape_text(expected.get(name))}); the weights are not of the configured shape"
            )


def _shape_text(shape: tuple[int, ...] | None) -> str:
    return "no such tensor" if shape is None else f"shape {list(shape)}"


def _num_bytes(row: Row) -> int:
    return math.prod(row.shape) * _BYTES_PER_ELEMENT


def _write_json(path: Path, content: Mapping[str, object]) -> None:
    with path.open("w", encoding="utf-8") as file:
        json.dump(content, file, ensure_ascii=False, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
