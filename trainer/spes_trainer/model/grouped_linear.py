"""One matrix product per expert over rows grouped by expert; weight gradients for owned ones only.

Dimension key: R routed rows, I input features, O output features, E experts, F and D as in `moe`.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        return F.grouped_mm(x_RI, _stack(weights, x_RI, transposed), offs=offsets_E)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad_RO: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of all rows, and of the owned weights."""
        x_RI, offsets_E, *weights = ctx.saved_tensors
        grad_RO = grad_RO.contiguous()  # grouped_mm refuses expanded gradients
        grad_x = None
        if ctx.needs_input_grad[0]:
            stack = _stack(weights, grad_RO, not ctx.transposed)
            grad_x = F.grouped_mm(grad_RO, stack, offs=offsets_E)
        grads: list[Tensor | None] = [None] * len(weights)
        if ctx.num_owned:
            owned_offsets = offsets_E[: ctx.num_owned]
            left, right = (grad_RO, x_RI) if ctx.transposed else (x_RI, grad_RO)
            grad_stack = F.grouped_mm(left.t(), right, offs=owned_offsets)
            grads[: ctx.num_owned] = grad_stack.to(weights[0].dtype).unbind(0)
        return (grad_x, None, None, None, *grads)


def _stack(weights: Sequence[Tensor], like: Tensor, transposed: bool) -> Tensor:
    """All weights as one (E, I, O) tensor in the dtype that the rows are computed in."""
    stack = torch.stack(tuple(weights)).to(like.dtype)
    return stack.transpose(-2, -1) if transposed else stack


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
