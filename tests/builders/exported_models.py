"""Small models as safetensors files with random weights, as the sync server keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from spes_api.job import TokenizerSpec
from spes_api.model import ModelConfig
from spes_sync.export import ExportSettings
from spes_sync.export.layout import our_shapes

# Grouped queries, a head size that is not width / numHeads, renormalised gates.
PER_HEAD = ModelConfig(
    width=32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_width=16,
    expert_width=24,
    num_experts=4,
    num_experts_per_token=2,
    vocabulary=256,
    rope_theta=1_000_000.0,
    qk_norm="PerHead",
    renormalize=True,
)
WHOLE = ModelConfig(
    width=32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    expert_width=24,
    num_experts=4,
    num_experts_per_token=2,
    vocabulary=256,
    rope_theta=500.0,
    norm_epsilon=1.0e-3,
)
# As published by the Llama family: queries and keys as they are.
NO_NORM = PER_HEAD.model_copy(update={"qk_norm": "None"})


def random_weights(config: ModelConfig, *, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Weights large enough that every one of them changes the logits, norms included."""
    random = np.random.default_rng(seed)
    return {
        name: random.normal(1.0 if len(shape) == 1 else 0.0, 0.2, shape).astype("f4")
        for name, shape in our_shapes(config).items()
    }


def write_model(path: Path, weights: Mapping[str, NDArray[np.float32]]) -> Path:
    """A file as the server serves it."""
    save_file(dict(weights), path)
    return path


def export_settings(
    config: ModelConfig, *, tokenizer: TokenizerSpec | None = None, file: Path = Path("/nowhere")
) -> ExportSettings:
    """Of a model trained on sequences of 64 bytes, unless it has a tokenizer of its own."""
    return ExportSettings(
        config=config,
        tokenizer=tokenizer or TokenizerSpec(name="bytes"),
        tokenizer_file=file,
        sequence_tokens=64,
    )
