"""A served model as a Hugging Face folder: `export_model`.

One tensor is in memory at a time. Called by the sync server when a job completes and by
`spes-sync export`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from spes_api.job import TokenizerSpec
from spes_api.model import ModelConfig

from spes_sync.disk import Disk
from spes_sync.export.folder import MARKER, replaced_folder
from spes_sync.export.layout import check_shapes, tensor_rows
from spes_sync.export.settings import Layout, generation_settings, layout_of, to_hugging_face
from spes_sync.export.shards import write_weights
from spes_sync.export.tokenizer import tokenizer_files
from spes_sync.export.weightfile import WeightFile

logger = logging.getLogger(__name__)

_DISK = Disk()
# Crash point reported after each JSON file.
_DOCUMENT_WRITTEN = "export-document"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """What an export wrote."""

    folder: Path
    layout: Layout
    num_parameters: int
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
        ExportError: the model is not of that shape, has no such layout, or `to` cannot be written.
        DiskFullError: no space left; `to` is as it was.
    """
    to = to.resolve()
    layout, rows = layout_of(config), tensor_rows(config)
    documents = tokenizer_files(tokenizer, vocabulary=config.vocabulary)
    documents["config.json"] = to_hugging_face(config, sequence_tokens=sequence_tokens)
    documents["generation_config.json"] = generation_settings()
    source = WeightFile.open(model)
    check_shapes(source.shapes, {row.ours: row.shape for row in rows}, str(model))
    with replaced_folder(to, _DISK) as folder:
        written = write_weights(source, rows, folder, _DISK)
        documents[MARKER] = {
            "model": config.model_dump(by_alias=True, exclude_none=True, mode="json"),
            "modelSha256": written.model_sha256,
            "files": dict(written.files),
        }
        for name, content in documents.items():
            _DISK.write_json(folder / name, content, _DOCUMENT_WRITTEN)
    num_parameters = config.sizes.total
    logger.info("model exported folder=%s layout=%s parameters=%d", to, layout, num_parameters)
    return ExportResult(
        folder=to,
        layout=layout,
        num_parameters=num_parameters,
        model_sha256=written.model_sha256,
    )
