"""One matrix product per expert over rows grouped by expert; weight gradients for owned ones only.

Dimension key: R routed rows, I input features, O output features, E experts, F and D as in `moe`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional as F  # noqa: N812 - the name every torch reader knows


class _Context(FunctionCtx):
    """What `_GroupedLinear` keeps for its backward pass."""

    num_owned: int
    transposed: bool
    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]


class _GroupedLinear(torch.autograd.Function):
    """Saves the parameters, never their stack: no second copy of all experts."""

    @staticmethod
    def forward(
        ctx: _Context,
        x_RI: Tensor,
        offsets_E: Tensor,
        num_owned: int,
        transposed: bool,
        *weights: Tensor,
    ) -> Tensor:
        """See `grouped_linear`."""
        ctx.num_owned, ctx.transposed = num_owned, transposed
        ctx.save_for_backward(x_RI, offsets_E, *weights)
        return _products(x_RI, offsets_E, weights, transposed)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad_RO: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of all rows, and of the owned weights."""
        x_RI, offsets_E, *weights = ctx.saved_tensors
        grad_RO = grad_RO.contiguous()  # grouped_mm refuses expanded gradients
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = _products(grad_RO, offsets_E, weights, not ctx.transposed)
        grads: list[Tensor | None] = [None] * len(weights)
        if ctx.num_owned:
            left, right = (grad_RO, x_RI) if ctx.transposed else (x_RI, grad_RO)
            owned = _outer_products(left, right, offsets_E[: ctx.num_owned])
            grads[: ctx.num_owned] = [grad.to(weights[0].dtype) for grad in owned]
        return (grad_x, None, None, None, *grads)


def _products(
    x_RI: Tensor, offsets_E: Tensor, weights: Sequence[Tensor], transposed: bool
) -> Tensor:
    """Each group of rows times its own weight, in the dtype of the rows.

    A CPU computes one expert after the other anyway: there a stack would only be a copy.
    """
    if x_RI.device.type == "cpu":
        y_RO = x_RI.new_empty(x_RI.shape[0], weights[0].shape[0 if transposed else 1])
        for rows, weight in zip(_groups(offsets_E), weights, strict=True):
            weight_IO = weight.to(x_RI.dtype).t() if transposed else weight.to(x_RI.dtype)
            torch.mm(x_RI[rows], weight_IO, out=y_RO[rows])
        return y_RO
    stack = torch.stack(tuple(weights)).to(x_RI.dtype)
    return F.grouped_mm(x_RI, stack.transpose(-2, -1) if transposed else stack, offs=offsets_E)


def _outer_products(left_RO: Tensor, right_RI: Tensor, offsets_E: Tensor) -> Sequence[Tensor]:
    """Each group's transposed left rows times its right ones, (O, I)."""
    if left_RO.device.type == "cpu":
        return [left_RO[rows].t() @ right_RI[rows] for rows in _groups(offsets_E)]
    return F.grouped_mm(left_RO.t(), right_RI, offs=offsets_E).unbind(0)


def _groups(offsets_E: Tensor) -> list[slice]:
    ends = offsets_E.tolist()
    return [slice(start, end) for start, end in pairwise((0, *ends))]


def grouped_linear(
    x_RI: Tensor,
    offsets_E: Tensor,
    weights: Sequence[Tensor],
    *,
    num_owned: int,
    transposed: bool,
) -> Tensor:
    """Return y_RO: each group of rows times its own weight.

    Args:
        x_RI: Rows sorted by group.
        offsets_E: int32, end of each group; the last one is R.
        weights: One matrix per group, (I, O), or (O, I) if `transposed`. The first `num_owned` are
            trained.
        num_owned: Groups whose weight gets a gradient, zeros if it has no rows; the others get
            none.
        transposed: Multiply by the transposed weight.
    """
    apply = cast(Any, _GroupedLinear.apply)  # autograd's `apply` is untyped
    return cast(Tensor, apply(x_RI, offsets_E, num_owned, transposed, *weights))
