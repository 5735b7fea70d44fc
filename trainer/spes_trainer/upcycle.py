"""Makes a mixture of experts out of a dense model (SPES, arXiv 2602.11543, section 4.1).

Every expert of a layer starts as a copy of the layer's feed-forward network, with noise on a random
half of each of its matrices so that the experts drift apart; the router starts random; all else is
copied, a tied head too. The gates of the kept experts are divided by their sum, so that without
noise the result computes what the dense model does. A single expert gets no noise: it has nothing
to drift apart from, and stays the dense model. Runs without torch, tensor by tensor.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from pydantic import ValidationError
from spes_api.errors import ConfigError, Problem
from spes_api.model import ModelConfig
from spes_sync.codec import Array
from spes_sync.errors import ExportError
from spes_sync.export import ExportResult, PublishedModel, write_folder
from spes_sync.export.settings import generation_settings, to_hugging_face
from spes_sync.export.tokenizer import TOKENIZER, TOKENIZER_CONFIG

# Of the first router; large enough to break ties, which would send all tokens to the same experts.
ROUTER_STD = 0.02

_EXPERT = re.compile(r"(layers\.\d+\.experts\.)(\d+)(\.\w+)")
# Keys of config.json that say which tokens begin, end and fill a text.
_SPECIAL_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpcycleOptions:
    """How experts are made; the defaults are the paper's, but for their number."""

    num_experts: int
    num_experts_per_token: int | None = None
    """Absent: two, or the only one."""
    noise_std: float = 0.02
    noise_share: float = 0.5
    """Of each expert's matrix: so many of its elements get noise, rounded down."""
    seed: int = 0


def upcycle(dense_folder: Path, to: Path, options: UpcycleOptions) -> tuple[ExportResult, str]:
    """Write a Hugging Face folder that a job can start from, and transformers can load.

    Args:
        dense_folder: A Hugging Face folder of a dense model: Qwen3, or of the Llama family.
        to: New, empty, or written by an earlier call, which is replaced.
        options: How.

    Returns:
        What was written, and the `model` of a SpesJob that starts from it, as YAML: members declare
        the folder as a dataset of its name.

    Raises:
        ConfigError: there is no model with so many experts, in all or per token.
        ExportError: the folder is not such a model, or `to` cannot be written.
        DiskFullError: no space left; `to` is as it was.
    """
    dense = PublishedModel.open(dense_folder)
    if dense.config.num_experts > 1:
        raise ExportError(
            f"{dense_folder} has {dense.config.num_experts} experts a layer (expected a dense "
            "model, Llama or Qwen3); a job can start from it as it is"
        )
    config = _with_experts(dense.config, options)
    source = UpcycledModel(dense=dense, config=config, options=options)
    documents = _documents(dense.settings, config)
    files = {
        name: (dense_folder / name).read_bytes()
        for name in (TOKENIZER, TOKENIZER_CONFIG)
        if (dense_folder / name).is_file()
    }
    return write_folder(source, config, to, documents=documents, files=files), _job_model(
        config, to.resolve().name
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpcycledModel:
    """The tensors of the mixture, made one by one when they are asked for."""

    dense: PublishedModel
    config: ModelConfig
    options: UpcycleOptions

    def read(self, name: str) -> Array:
        """A tensor by our name; the same whenever it is asked for."""
        if name.endswith(".router.weight"):
            shape = (self.config.num_experts, self.config.width)
            drawn = self._generator(name).standard_normal(shape, dtype=np.float32)
            return drawn * np.float32(ROUTER_STD)
        expert = _EXPERT.fullmatch(name)
        if expert is None:
            return self.dense.read(name)
        value = self.dense.read(f"{expert[1]}0{expert[3]}")
        if self.config.num_experts == 1:
            return value
        return add_noise(
            value,
            self._generator(name),
            std=self.options.noise_std,
            share=self.options.noise_share,
        )

    def _generator(self, name: str) -> np.random.Generator:
        digest = hashlib.sha256(name.encode()).digest()
        return np.random.Generator(np.random.PCG64([self.options.seed, *digest]))


def add_noise(value: Array, generator: np.random.Generator, *, std: float, share: float) -> Array:
    """Return a copy in which floor(share * size) distinct elements have noise from N(0, std^2)."""
    flat = value.flatten()
    if num_changed := math.floor(share * flat.size):
        chosen = generator.choice(flat.size, num_changed, replace=False, shuffle=False)
        drawn = generator.standard_normal(num_changed, dtype=np.float32)
        flat[chosen] += drawn * np.float32(std)
    return flat.reshape(value.shape)


def _with_experts(dense: ModelConfig, options: UpcycleOptions) -> ModelConfig:
    changes = {
        "num_experts": options.num_experts,
        "num_experts_per_token": options.num_experts_per_token or min(2, options.num_experts),
    }
    try:
        return ModelConfig.model_validate(dense.model_dump() | changes)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "experts"
        text = f"{first['msg'].removeprefix('Value error, ')}; change --experts"
        raise ConfigError.of("upcycle", [Problem(text=text, field=field)]) from error


def _documents(dense: Mapping[str, object], config: ModelConfig) -> dict[str, dict[str, object]]:
    special = {key: dense[key] for key in _SPECIAL_TOKENS if key in dense}
    length = dense.get("max_position_embeddings")
    described = to_hugging_face(config, sequence_tokens=length if isinstance(length, int) else 2048)
    return {
        "config.json": described | special,
        "generation_config.json": generation_settings() | special,
    }


def _job_model(config: ModelConfig, dataset: str) -> str:
    fields = config.model_dump(by_alias=True, exclude_none=True, mode="json")
    start = {"dataset": {"name": dataset}, "config": fields}
    return yaml.safe_dump({"model": {"upcycleFrom": start}}, sort_keys=False)
