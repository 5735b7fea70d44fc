"""What a forward pass keeps for the backward pass, beside what `spes explain` says of it."""

from __future__ import annotations

import pytest
import torch
from builders.nano import nano_spec
from spes_api.job import SpesJobSpec
from spes_operator.placement.costs import estimated_activation_bytes
from spes_trainer.assembly import build_stepper
from spes_trainer.model.losses import training_loss

SHAPE = {
    "width": 64,
    "numLayers": 8,
    "numHeads": 4,
    "expertWidth": 96,
    "numExperts": 8,
    "numExpertsPerToken": 2,
    "vocabulary": 256,
}


def spec_of(*, checkpointing: bool) -> SpesJobSpec:
    """512 tokens at once."""
    plain = nano_spec(batchTokens=512).model_dump(by_alias=True, exclude_none=True)
    plain["model"] = {"config": SHAPE}
    plain["data"]["sequenceTokens"] = 128
    plain["trainer"]["activationCheckpointing"] = checkpointing
    return SpesJobSpec.model_validate(plain)


def kept_bytes(spec: SpesJobSpec) -> int:
    """Of storages that autograd saves and that are no parameters."""
    stepper = build_stepper(spec)
    stepper.model.own(range(4))
    parameters = {p.untyped_storage().data_ptr() for p in stepper.model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage
        return tensor

    tokens_BS = torch.zeros(4, 128, dtype=torch.int64)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = stepper.model(tokens_BS)
        training_loss(output, tokens_BS, spec.training.losses, num_micro_batches=1)
    return sum(storage.nbytes() for storage in kept.values())


def test_the_estimate_is_what_autograd_keeps():
    spec = spec_of(checkpointing=False)
    assert kept_bytes(spec) == pytest.approx(estimated_activation_bytes(spec), rel=0.2)


def test_the_estimate_follows_checkpointing():
    """Autograd keeps the layers' inputs; going backwards adds one layer and the logits'."""
    plain, spec = spec_of(checkpointing=False), spec_of(checkpointing=True)
    estimate = estimated_activation_bytes(spec)
    inputs = 8 * 512 * 64 * 4
    assert inputs < kept_bytes(spec) < estimate < estimated_activation_bytes(plain) / 4
