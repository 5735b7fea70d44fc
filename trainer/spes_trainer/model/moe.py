"""Mixture of experts: routing, dispatch, the experts themselves.

Dimension key: T tokens, D width, E experts, K experts per token, R = T*K routed rows, F hidden
width of an expert.

Notable choices: softmax over all experts before the top-k; drop-less, every routed token is
processed (SPES, section 3.2); equal probabilities are resolved towards the lowest expert index,
because `torch.topk` leaves that open and two peers must route alike; rows move by gathers in both
directions, because scatter-adds are not deterministic on GPUs.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name every torch reader knows

from spes_trainer.model.grouped_linear import grouped_linear


class Routing(NamedTuple):
    """Where each token goes in one layer."""

    logits_TE: Tensor
    weight_TK: Tensor
    expert_TK: Tensor


def route(logits_TE: Tensor, *, num_experts_per_token: int, renormalize: bool) -> Routing:
    """Choose the experts of each token and the weights of their outputs.

    Args:
        logits_TE: Of the router.
        num_experts_per_token: K.
        renormalize: Divide the kept probabilities by their sum (upcycled models, as Mixtral).
    """
    logits_TE = logits_TE.float()  # bf16 would create ties and change the routing
    probs_TE = torch.softmax(logits_TE, dim=-1)
    sorted_TE, order_TE = probs_TE.sort(dim=-1, descending=True, stable=True)
    weight_TK = sorted_TE[:, :num_experts_per_token].clone()  # FSDP2 hooks into no views
    if renormalize:
        weight_TK = weight_TK / weight_TK.sum(dim=-1, keepdim=True)
    return Routing(
        logits_TE=logits_TE, weight_TK=weight_TK, expert_TK=order_TE[:, :num_experts_per_token]
    )


class _PermuteRows(torch.autograd.Function):
    """x[order], whose gradient is a gather too."""

    @staticmethod
    def forward(ctx: Any, x_RD: Tensor, order_R: Tensor, inverse_R: Tensor) -> Tensor:
        """Keep the inverse alone."""
        ctx.save_for_backward(inverse_R)
        return x_RD[order_R]

    @staticmethod
    def backward(ctx: Any, grad_RD: Tensor) -> tuple[Tensor, None, None]:
        """Send every row's gradient back."""
        (inverse_R,) = ctx.saved_tensors
        return grad_RD[inverse_R], None, None


def _permute_rows(x_RD: Tensor, order_R: Tensor, inverse_R: Tensor) -> Tensor:
    apply = cast(Any, _PermuteRows.apply)  # autograd's `apply` is untyped
    return cast(Tensor, apply(x_RD, order_R, inverse_R))


class Expert(nn.Module):
    """One expert of one layer: three parameters, so that it can be owned alone."""

    def __init__(self, width: int, expert_width: int) -> None:
        """Leave the matrices uninitialised."""
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(expert_width, width))  # gate
        self.v1 = nn.Parameter(torch.empty(expert_width, width))  # up
        self.w2 = nn.Parameter(torch.empty(expert_width, width))  # down, stored transposed

    @property
    def owned(self) -> bool:
        """Whether this peer trains the expert."""
        return self.w1.requires_grad


class Experts(nn.ModuleList):
    """All experts of one layer; the owned ones are those that require a gradient."""

    def __init__(self, num_experts: int, width: int, expert_width: int) -> None:
        """Leave the experts uninitialised and owned."""
        super().__init__(Expert(width, expert_width) for _ in range(num_experts))

    def forward(self, x_TD: Tensor, routing: Routing) -> Tensor:
        """Return the weighted sum of each token's experts, (T, D)."""
        num_tokens, num_kept = routing.expert_TK.shape
        experts = cast(list[Expert], list(self))
        slots = sorted(range(len(experts)), key=lambda e: not experts[e].owned)  # owned ones first
        slot_of_E = torch.tensor(slots, device=x_TD.device).argsort()
        slot_R = slot_of_E[routing.expert_TK.reshape(-1)]
        order_R = slot_R.argsort(stable=True)
        inverse_R = order_R.argsort()
        slots_E = torch.arange(len(slots), device=x_TD.device)
        offsets_E = torch.searchsorted(slot_R[order_R], slots_E, right=True, out_int32=True)

        if torch.is_autocast_enabled(x_TD.device.type):  # autocast does not reach grouped products
            x_TD = x_TD.to(torch.get_autocast_dtype(x_TD.device.type))
        repeated_RD = x_TD.unsqueeze(1).expand(-1, num_kept, -1).reshape(-1, x_TD.shape[1])
        rows_RD = self._compute(
            _permute_rows(repeated_RD, order_R, inverse_R), offsets_E, [experts[e] for e in slots]
        )
        out_TKD = _permute_rows(rows_RD, inverse_R, order_R).view(num_tokens, num_kept, -1)
        return (out_TKD * routing.weight_TK.to(out_TKD.dtype).unsqueeze(-1)).sum(dim=1)

    @staticmethod
    def _compute(x_RD: Tensor, offsets_E: Tensor, experts: list[Expert]) -> Tensor:
        """SwiGLU of every row with its own expert: (silu(x w1^T) * (x v1^T)) w2."""
        num_owned = sum(expert.owned for expert in experts)
        gate_RF = grouped_linear(
            x_RD, offsets_E, [e.w1 for e in experts], num_owned=num_owned, transposed=True
        )
        up_RF = grouped_linear(
            x_RD, offsets_E, [e.v1 for e in experts], num_owned=num_owned, transposed=True
        )
        return grouped_linear(
            F.silu(gate_RF) * up_RF,
            offsets_E,
            [e.w2 for e in experts],
            num_owned=num_owned,
            transposed=False,
        )
