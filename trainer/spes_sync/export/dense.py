"""A dense Hugging Face model, read as a model of ours with a single expert in every layer.

For upcycling. Of dense models only Qwen3's has our attention: queries and keys normalised per head.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field
from spes_api.model import ModelConfig

from spes_sync.codec import Array
from spes_sync.export.layout import Row, check_shapes, tensor_rows
from spes_sync.export.reader import open_weights, read_json
from spes_sync.export.settings import CommonSettings, read_settings
from spes_sync.export.weightfile import WeightFile

_HEAD, _EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


class _DenseSettings(CommonSettings):
    """Qwen3's."""

    model_type: Literal["qwen3"]
    tie_word_embeddings: bool = False
    layer_types: list[Literal["full_attention"]] | None = Field(default=None)

    def to_config(self) -> ModelConfig:
        """In our terms: one expert, whose gate is 1."""
        return ModelConfig(
            width=self.hidden_size,
            num_layers=self.num_hidden_layers,
            num_heads=self.num_attention_heads,
            num_kv_heads=self.num_key_value_heads,
            head_width=self.head_dim,
            expert_width=self.intermediate_size,
            num_experts=1,
            num_experts_per_token=1,
            vocabulary=self.vocab_size,
            rope_theta=self.rope_parameters.rope_theta,
            norm_epsilon=self.rms_norm_eps,
            qk_norm="PerHead",
            renormalize=True,
            init_std=self.initializer_range,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseModel:
    """Checked names, shapes and settings; weights are read on demand."""

    config: ModelConfig
    """With one expert; it needs a router, which a dense model does not have."""
    settings: Mapping[str, object]
    """All of its `config.json`."""
    _files: Mapping[str, WeightFile]
    _rows: Mapping[str, Row]

    @classmethod
    def open(cls, folder: Path) -> DenseModel:
        """Check everything but the values.

        Raises:
            ExportError: no Qwen3 folder, a damaged file, or a feature our model lacks.
        """
        settings = read_json(folder / "config.json")
        checked, config = read_settings(_DenseSettings, settings)
        files = open_weights(folder)
        if checked.tie_word_embeddings and _EMBEDDING in files:
            files = {_HEAD: files[_EMBEDDING]} | files
        rows = {row.ours: _dense(row) for row in tensor_rows(config) if "router" not in row.ours}
        shapes = {row.theirs: row.their_shape for row in rows.values()}
        check_shapes(
            {name: file.shapes[_name_in(file, name)] for name, file in files.items()},
            shapes,
            str(folder),
        )
        return cls(config=config, settings=settings, _files=files, _rows=rows)

    def read(self, name: str) -> Array:
        """A tensor by our name, as float32."""
        row = self._rows[name]
        file = self._files[row.theirs]
        value = file.read(_name_in(file, row.theirs))
        return value.T if row.transposed else value


def _name_in(file: WeightFile, name: str) -> str:
    """A tied head lies in the file as the embedding."""
    return _EMBEDDING if name == _HEAD and _HEAD not in file.shapes else name


def _dense(row: Row) -> Row:
    theirs = re.sub(r"\.mlp\.experts\.0\.", ".mlp.", row.theirs)
    return Row(ours=row.ours, theirs=theirs, shape=row.shape, transposed=row.transposed)
