"""The model's weights by name, in and out, checked."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from spes_trainer.errors import CheckpointError
from spes_trainer.model.transformer import Transformer
from spes_trainer.rows import local_rows


def weights_of(model: Transformer) -> dict[str, Tensor]:
    """The live weights that this process holds, sorted by name; not copies."""
    return {name: local_rows(p.detach()) for name, p in sorted(model.named_parameters())}


@torch.no_grad()
def load_weights(model: Transformer, weights: Mapping[str, Tensor]) -> None:
    """Copy weights in place, so that the optimizer keeps its parameters.

    Raises:
        CheckpointError: names or shapes are not the model's; nothing was copied.
    """
    own = {name: local_rows(p) for name, p in model.named_parameters()}
    if differing := sorted(own.keys() ^ weights.keys()):
        raise CheckpointError(
            f"weights are of another model (got {len(weights)} tensors, expected {len(own)}; "
            f"first difference: {differing[0]})"
        )
    for name, parameter in own.items():
        if weights[name].shape != parameter.shape:
            raise CheckpointError(
                f"weights are of another model ({name}: got shape {list(weights[name].shape)}, "
                f"expected {list(parameter.shape)})"
            )
    for name, parameter in own.items():
        parameter.copy_(weights[name])
