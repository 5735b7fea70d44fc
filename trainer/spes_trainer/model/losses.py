"""The training loss: cross-entropy, z-loss, load balance (SPES, section 3.3), router z-loss.

The last is not in the paper's text but in the configurations released with it.

Cross-entropy and z-loss are sums over tokens divided by the tokens of the whole step, so their
gradient does not depend on how the step is cut into micro-batches. The router's losses are
statistics of one micro-batch, averaged over the micro-batches. Of a micro-batch that is shared out
over ranks, each has its part of the sums: they add up to what one process would have.

Dimension key: B sequences, S positions, V vocabulary, T = B*S tokens, E experts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from spes_api.job import LossSpec
from torch import Tensor

from spes_trainer.model.moe import Routing
from spes_trainer.model.transformer import Output
from spes_trainer.ranks import ALONE, Ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchLoss:
    """Of one micro-batch."""

    total: Tensor
    """Its share of the step's loss; what `backward` is called on."""
    nll_sum: Tensor
    """Negative log-likelihood, summed over the labelled positions."""
    num_labels: int
    z: Tensor
    """Its share of the step's z-loss; as the next two before the coefficient."""
    load_balance: Tensor
    router_z: Tensor
    routed_LE: Tensor
    """Tokens that each expert of each layer got."""


def token_losses(logits_BSV: Tensor, tokens_BS: Tensor) -> tuple[Tensor, Tensor]:
    """Return, per labelled position, the negative log-likelihood of the next token and logsumexp^2.

    Position s is labelled with token s+1; the last position of a sequence has no label.
    """
    logits = logits_BSV[:, :-1]
    lse = torch.logsumexp(logits, dim=-1)
    chosen = logits.gather(-1, tokens_BS[:, 1:].unsqueeze(-1)).squeeze(-1)
    return lse - chosen, lse.square()


def load_balance(routings: Sequence[Routing], ranks: Ranks = ALONE) -> Tensor:
    """Return E/(L*T*K) * sum_l sum_e n_le * mean_t p_lte: 1 when routing is uniform.

    No gradient flows through the counts n. With ranks, T and n are of all and the mean is the part
    of it that comes from the tokens here.
    """
    num_here, num_experts = routings[0].logits_TE.shape
    num_tokens = ranks.count(num_here)
    counts_LE = ranks.total(_routed(routings))
    terms = []
    for routing, counts_E in zip(routings, counts_LE, strict=True):
        mean_E = torch.softmax(routing.logits_TE, dim=-1).mean(dim=0) * (num_here / num_tokens)
        share = num_experts / (num_tokens * routing.expert_TK.shape[1])
        terms.append(share * (counts_E * mean_E).sum())
    return torch.stack(terms).mean()


def router_z(routings: Sequence[Routing]) -> Tensor:
    """Return the mean squared logsumexp of the router's logits, summed over the layers."""
    return torch.stack(
        [torch.logsumexp(r.logits_TE, dim=-1).square().mean() for r in routings]
    ).sum()


def _routed(routings: Sequence[Routing]) -> Tensor:
    """Tokens that each expert index got in each layer, (L, E)."""
    return torch.stack(
        [torch.bincount(r.expert_TK.reshape(-1), minlength=r.logits_TE.shape[1]) for r in routings]
    )


def training_loss(
    output: Output,
    tokens_BS: Tensor,
    coefficients: LossSpec,
    *,
    num_micro_batches: int,
    ranks: Ranks = ALONE,
) -> MicroBatchLoss:
    """Return what one of `num_micro_batches` equal micro-batches adds to the step's loss.

    With ranks, what the part of the micro-batch that is here adds.
    """
    nll_BS, lse_squared_BS = token_losses(output.logits_BSV, tokens_BS)
    num_tokens = ranks.count(tokens_BS.numel())
    step_tokens = num_tokens * num_micro_batches
    nll_sum, lse_squared_sum = nll_BS.sum(), lse_squared_BS.sum()
    total = (nll_sum + coefficients.z_loss * lse_squared_sum) / step_tokens
    balance = load_balance(output.routings, ranks)
    router = router_z(output.routings) * (tokens_BS.numel() / num_tokens)
    routers = coefficients.load_balance * balance + coefficients.router_z_loss * router
    return MicroBatchLoss(
        total=total + routers / num_micro_batches,
        nll_sum=nll_sum.detach(),
        num_labels=nll_BS.numel(),
        z=lse_squared_sum.detach() / step_tokens,
        load_balance=balance.detach() / num_micro_batches,
        router_z=router.detach() / num_micro_batches,
        routed_LE=_routed(output.routings),
    )
