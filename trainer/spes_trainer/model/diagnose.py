"""Finds where a NaN or an infinity first appears. Called only after one was seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from spes_trainer.model.transformer import Transformer
from spes_trainer.rows import local_rows


def first_non_finite(model: Transformer, micro_batches: Sequence[Tensor]) -> str:
    """Name the first weight, else layer's output, else gradient that is not finite.

    Gradients are searched from the head backwards, the way they flow. Of sharded tensors only the
    rows that this process holds are looked at.
    """
    outputs = [_first_output(model, tokens_BS) for tokens_BS in micro_batches]  # by all ranks
    for name, parameter in model.named_parameters():
        if not _finite(parameter):
            return f"weight {name}"
    for found in outputs:
        if found:
            return f"the output of {found}"
    for name, parameter in reversed(list(model.named_parameters())):
        if parameter.grad is not None and not _finite(parameter.grad):
            return f"the gradient of {name}"
    return "the sum over all gradients"


@torch.no_grad()
def _first_output(model: Transformer, tokens_BS: Tensor) -> str | None:
    found: list[str] = []
    names = {module: name for name, module in model.named_modules() if name}

    def look(module: nn.Module, _inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and not _finite(output):
            found.append(names[module])

    handles = [module.register_forward_hook(look) for module in names]
    try:
        model(tokens_BS)
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None


def _finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(local_rows(tensor)).all().item())
