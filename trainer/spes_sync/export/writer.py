"""A served model as a Hugging Face folder: `export_model`.

One tensor is in memory at a time. Called by the sync server when a job completes and by
`spes-sync export`; `write_folder` also by what makes a model out of another one.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spes_api.job import TokenizerSpec
from spes_api.model import ModelConfig

from spes_sync.disk import Disk
from spes_sync.errors import ExportError
from spes_sync.export.folder import MARKER, replaced_folder
from spes_sync.export.layout import Layout, check_shapes, layout_of, our_shapes, tensor_rows
from spes_sync.export.settings import generation_settings, to_hugging_face
from spes_sync.export.shards import TensorSource, write_weights
from spes_sync.export.tokenizer import ExportedTokenizer, byte_tokenizer, given_tokenizer
from spes_sync.export.weightfile import WeightFile

logger = logging.getLogger(__name__)

_DISK = Disk()
# Crash point reported after each JSON file.
_DOCUMENT_WRITTEN = "export-document"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """What a folder says beside the weights."""

    config: ModelConfig
    tokenizer: TokenizerSpec
    """How the job turned text into tokens."""
    tokenizer_file: Path
    """Where its tokenizer.json is, if it has one."""
    sequence_tokens: int
    """The length the model was trained on: the longest context it knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """What an export wrote."""

    folder: Path
    layout: Layout
    num_parameters: int
    """Of the folder: a dense layout has no router."""
    model_sha256: str
    """Over the model's bytes in the order of our names, as in the journal."""


def export_model(model: Path, settings: ExportSettings, to: Path) -> ExportResult:
    """Write `model` to the folder `to`, which appears whole or not at all.

    Args:
        model: A safetensors file with our tensor names, float32.
        settings: What it is. Without its tokenizer's file the folder has no tokenizer.
        to: New, empty, or an earlier export, which is replaced.

    Raises:
        ExportError: the model is not of that shape, has no such layout, or `to` cannot be written.
        DiskFullError: no space left; `to` is as it was.
    """
    config, tokenizer = settings.config, _tokenizer(settings)
    source = WeightFile.open(model)
    check_shapes(source.shapes, our_shapes(config), str(model))
    ends = {"eos_token_id": tokenizer.end_id}
    described = to_hugging_face(config, sequence_tokens=settings.sequence_tokens)
    documents = {
        "config.json": described | ends,
        "generation_config.json": generation_settings() | ends,
    }
    return write_folder(source, config, to, documents=documents, files=tokenizer.files)


def write_folder(
    source: TensorSource,
    config: ModelConfig,
    to: Path,
    *,
    documents: Mapping[str, Mapping[str, object]],
    files: Mapping[str, bytes],
) -> ExportResult:
    """Write tensors, JSON documents and files to the folder `to`, whole or not at all.

    Raises:
        ExportError: there is no layout for the model, or `to` cannot be written.
        DiskFullError: no space left; `to` is as it was.
    """
    to = to.resolve()
    layout = layout_of(config)
    rows = tensor_rows(config, layout)
    with replaced_folder(to, _DISK) as folder:
        written = write_weights(source, rows, folder, _DISK)
        for name, content in files.items():
            _DISK.write(folder / name, content, _DOCUMENT_WRITTEN)
        for name, document in documents.items():
            _DISK.write_json(folder / name, document, _DOCUMENT_WRITTEN)
        marker = {
            "model": config.model_dump(by_alias=True, exclude_none=True, mode="json"),
            "modelSha256": written.model_sha256,
            "files": dict(written.files),
        }
        _DISK.write_json(folder / MARKER, marker, _DOCUMENT_WRITTEN)
    num_parameters = sum(math.prod(row.shape) for row in rows if row.theirs)
    logger.info("model exported folder=%s layout=%s parameters=%d", to, layout, num_parameters)
    return ExportResult(
        folder=to,
        layout=layout,
        num_parameters=num_parameters,
        model_sha256=written.model_sha256,
    )


def _tokenizer(settings: ExportSettings) -> ExportedTokenizer:
    spec, vocabulary = settings.tokenizer, settings.config.vocabulary
    if spec.path is None:
        return byte_tokenizer(vocabulary=vocabulary)
    try:
        content = settings.tokenizer_file.read_bytes()
    except FileNotFoundError:
        logger.warning(
            "exporting without a tokenizer: no %s; put the job's %s there or name it",
            settings.tokenizer_file,
            spec.path,
        )
        return ExportedTokenizer(files={}, end_id=None)
    except OSError as error:
        raise ExportError(f"cannot read {settings.tokenizer_file}: {error.strerror}") from error
    return given_tokenizer(content, end_token=spec.end_token, vocabulary=vocabulary)
