"""Samples text from a trained model.

Dimension key: B = 1 sequence, S positions, V vocabulary.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from spes_api.job import SpesJobSpec, TokenizerSpec
from spes_api.model import ModelConfig
from spes_sync.disk import Disk
from torch import Tensor

from spes_trainer.checkpoint import CheckpointStore
from spes_trainer.data.tokenizer import TOKENIZER_FILE, Tokenizer, open_tokenizer
from spes_trainer.errors import VolumeError
from spes_trainer.model.transformer import Transformer
from spes_trainer.weights import load_weights

# Below 1 prefers likely tokens; a small model's text is hard to read at 1.
TEMPERATURE = 0.8
# Tokens that the model looks back on. Short, as every token is computed from all of them.
WINDOW = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to sample."""

    prompt: str = ""
    num_tokens: int = 200
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """A model, and what turns its tokens into text."""

    model: Transformer
    tokenizer: Tokenizer


def load_author(directory: Path) -> Author:
    """Load the newest model from a trainer's directory or from that of a sync server.

    Raises:
        VolumeError: there is no model in it.
        ConfigError: the model's tokenizer is not there.
    """
    if (directory / "HEAD").is_file():
        config, spec, weights = _from_sync_server(directory)
    else:
        found = CheckpointStore(directory, keep_last=1, disk=Disk()).load()
        if found is None:
            raise VolumeError(
                f"{directory} holds no model (expected the --dir of a trainer or a "
                "sync server, such as RUN/sync)"
            )
        config = ModelConfig.model_validate(found.state["model"])
        spec = TokenizerSpec.model_validate(found.state["tokenizer"])
        weights = dict(found.weights)
    file = None if spec.path is None else directory / TOKENIZER_FILE
    tokenizer = open_tokenizer(spec, file)
    model = Transformer(config)
    load_weights(model, weights)
    return Author(model=model, tokenizer=tokenizer)


def _from_sync_server(directory: Path) -> tuple[ModelConfig, TokenizerSpec, dict[str, Tensor]]:
    try:
        version = (directory / "HEAD").read_text().strip()
        settings = json.loads((directory / "settings.json").read_bytes())
        weights = load_file(directory / "versions" / version / "model.safetensors")
        spec = SpesJobSpec.model_validate(settings)
        return spec.model.resolve(), spec.data.tokenizer, weights
    except (OSError, ValueError, SafetensorError) as error:
        raise VolumeError(f"{directory} holds no readable model ({error})") from error


@torch.no_grad()
def generate(author: Author, request: Request) -> str:
    """Return the prompt and what the model makes of it; the same seed gives the same text."""
    generator = torch.Generator().manual_seed(request.seed)
    tokenizer = author.tokenizer
    prompt = tokenizer.encode([request.prompt.encode()])[0]
    start = [tokenizer.end_of_text, *prompt.tolist()]
    tokens_S = torch.tensor(start)
    for _ in range(request.num_tokens):
        logits_V = author.model(tokens_S[-WINDOW:].unsqueeze(0)).logits_BSV[0, -1]
        probs_V = torch.softmax(logits_V[: tokenizer.vocabulary] / TEMPERATURE, dim=-1)
        tokens_S = torch.cat((tokens_S, torch.multinomial(probs_V, 1, generator=generator)))
    return tokenizer.decode(tokens_S[1:].tolist())
