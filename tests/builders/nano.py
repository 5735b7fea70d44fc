"""moe-nano: the smallest model with everything in it, its job, and a little text to train on."""

from __future__ import annotations

from pathlib import Path

import torch
from spes_api.job import SpesJobSpec
from spes_api.model import ModelConfig
from spes_trainer.assembly import build_stepper
from spes_trainer.model.transformer import Transformer
from spes_trainer.step import Stepper

NANO = ModelConfig(
    width=32,
    num_layers=1,
    num_heads=2,
    expert_width=32,
    num_experts=4,
    num_experts_per_token=2,
    vocabulary=256,
    init_std=0.06,
)


def nano_spec(**training) -> SpesJobSpec:
    """A job of 16 steps of 64 tokens, in rounds of 4; arguments change `training`."""
    return SpesJobSpec.model_validate(
        {
            "model": {"config": NANO.model_dump(by_alias=True, exclude_none=True)},
            "data": {
                "sources": [{"dataset": {"name": "words"}}],
                "sequenceTokens": 16,
                "heldOutFraction": 0.3,
            },
            "training": {
                "maxTokens": 1024,
                "batchTokens": 64,
                "optimizer": {"learningRate": 0.01},
                "schedule": {"warmupTokens": 128},
                "precision": "FP32",
                "evaluation": {"tokens": 128},
            }
            | training,
            "sync": {"everySteps": 4},
            "checkpoint": {"keepLast": 2},
        }
    )


def write_words(data_root: Path, *, num_files: int = 8) -> Path:
    """The dataset `words`: a few files of repetitive text. Returns the data root."""
    folder = data_root / "words"
    folder.mkdir(parents=True)
    for index in range(num_files):
        text = f"file {index}: " + "the quick brown fox jumps over the lazy dog. " * (index + 3)
        (folder / f"{index}.txt").write_text(text)
    return data_root


def nano_model(*, config: ModelConfig = NANO, seed: int = 0) -> Transformer:
    """An initialised model."""
    model = Transformer(config)
    model.initialize(seed)
    return model


def nano_stepper(*, owned=range(4), **training) -> Stepper:
    """A stepper that trains the shared parameters and the given experts."""
    stepper = build_stepper(nano_spec(**training))
    follow(stepper, owned)
    return stepper


def follow(stepper: Stepper, owned, *, ramp: bool = False, moments=None) -> None:
    """Change what a stepper trains."""
    stepper.model.own(owned)
    trained = {n: p for n, p in stepper.model.named_parameters() if p.requires_grad}
    stepper.optimizer.follow(trained, ramp=ramp, moments=moments)


def nano_tokens(num_sequences: int = 4, length: int = 16, *, seed: int = 0):
    """Random sequences as the data path yields them."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (num_sequences, length), generator=generator).byte().numpy()
