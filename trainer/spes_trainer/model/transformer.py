"""The decoder-only mixture-of-experts transformer (SPES, section 3.2).

Pre-norm blocks, no biases, no dropout, an output head of its own. One parameter per matrix and
expert, so that ownership is `requires_grad` and moves without touching any weight.

Dimension key: B sequences, S positions, T = B*S tokens, D width, V vocabulary, E experts.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, cast

import torch
from spes_api.model import ModelConfig
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from spes_trainer.errors import config_error
from spes_trainer.model.attention import Attention, RMSNorm, Rotary, rotary
from spes_trainer.model.documents import visible_within_documents
from spes_trainer.model.moe import Experts, Routing, route
from spes_trainer.rows import copy_rows, local_rows

# Matrices are drawn from a normal distribution cut at this many standard deviations.
INIT_CUT = 3.0
# Grouped matrix products need rows of 16 bytes in bfloat16.
WIDTH_MULTIPLE = 8


class Output(NamedTuple):
    """What one forward pass yields; a tuple, so that FSDP2 finds the tensors in it."""

    logits_BSV: Tensor
    routings: tuple[Routing, ...]
    """One per layer."""


class Block(nn.Module):
    """x <- x + attention(norm(x)); x <- x + experts(norm(x))."""

    def __init__(self, config: ModelConfig) -> None:
        """Leave the parameters uninitialised."""
        super().__init__()
        self.num_experts_per_token = config.num_experts_per_token
        self.renormalize = config.renormalize
        self.attention_norm = RMSNorm(config.width, config.norm_epsilon)
        self.attention = Attention(config)
        self.expert_norm = RMSNorm(config.width, config.norm_epsilon)
        self.router = nn.Linear(config.width, config.num_experts, bias=False)
        self.experts = Experts(config.num_experts, config.width, config.expert_width)
        self.recompute = False

    def forward(
        self, x_BSD: Tensor, angles: Rotary, visible_BSS: Tensor | None
    ) -> tuple[Tensor, Routing]:
        """Return the next residual stream and where the tokens went."""
        if self.recompute and torch.is_grad_enabled():
            return checkpoint(self._compute, x_BSD, angles, visible_BSS, use_reentrant=False)
        return self._compute(x_BSD, angles, visible_BSS)

    def _compute(
        self, x_BSD: Tensor, angles: Rotary, visible_BSS: Tensor | None
    ) -> tuple[Tensor, Routing]:
        x_BSD = x_BSD + self.attention(self.attention_norm(x_BSD), angles, visible_BSS)
        normed_TD = self.expert_norm(x_BSD).flatten(0, 1)
        routing = route(
            self.router(normed_TD),
            num_experts_per_token=self.num_experts_per_token,
            renormalize=self.renormalize,
        )
        return x_BSD + self.experts(normed_TD, routing).view_as(x_BSD), routing


class Transformer(nn.Module):
    """The whole model. Parameters are uninitialised until `initialize` or a load."""

    def __init__(self, config: ModelConfig) -> None:
        """Lay out the parameters.

        Raises:
            ConfigError: a width is not a multiple of `WIDTH_MULTIPLE`.
        """
        super().__init__()
        for name, width in (("width", config.width), ("expertWidth", config.expert_width)):
            if width % WIDTH_MULTIPLE:
                raise config_error(
                    "spec",
                    f"model.config.{name}",
                    got=width,
                    expected=f"a multiple of {WIDTH_MULTIPLE}",
                    hint="round it up",
                )
        self.config = config
        self.owned = frozenset(range(config.num_experts))
        empty = torch.empty(config.vocabulary, config.width)  # nn.Embedding would fill it
        self.embedding = nn.Embedding(config.vocabulary, config.width, _weight=empty)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.width, config.norm_epsilon)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, tokens_BS: Tensor, *, document_end: int | None = None) -> Output:
        """Return the logits of every next token, in float32, and the routing of every layer.

        With `document_end` attention stays inside the documents that end with this token.
        """
        angles = rotary(
            tokens_BS.shape[1],
            head_size=self.config.head_size,
            theta=self.config.rope_theta,
            device=tokens_BS.device,
        )
        visible_BSS = (
            None if document_end is None else visible_within_documents(tokens_BS, document_end)
        )
        x_BSD, routings = self.embedding(tokens_BS).float(), []
        for block in self.layers:
            x_BSD, routing = block(x_BSD, angles, visible_BSS)
            routings.append(routing)
        return Output(
            logits_BSV=self.head(self.norm(x_BSD)).float(),
            routings=tuple(routings),
        )

    @torch.no_grad()
    def initialize(self, seed: int) -> None:
        """Fill every matrix from the seed, in the order of the names; norms become 1."""
        generator = torch.Generator().manual_seed(seed)
        std = self.config.init_std
        for _, parameter in sorted(self.named_parameters()):
            if parameter.ndim == 1:
                local_rows(parameter).fill_(1.0)
                continue
            drawn = torch.empty(parameter.shape)
            nn.init.trunc_normal_(
                drawn, std=std, a=-INIT_CUT * std, b=INIT_CUT * std, generator=generator
            )
            copy_rows(parameter, drawn)

    def recompute_blocks(self) -> None:
        """Keep no activations inside blocks; `backward` computes them again."""
        for block in self.layers:
            cast(Block, block).recompute = True

    def own(self, experts: Collection[int]) -> None:
        """Train these expert indices in every layer, no others, and all shared parameters."""
        self.owned = frozenset(experts)
        for block in self.layers:
            for index, expert in enumerate(cast(Block, block).experts):
                expert.requires_grad_(index in experts)
