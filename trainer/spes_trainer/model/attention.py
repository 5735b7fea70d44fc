"""Causal self-attention with rotary positions; queries and keys may be normalised.

Dimension key: B sequences, S positions, D width, N query heads, G key/value heads, H size of a
head.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from spes_api.model import ModelConfig
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name every torch reader knows


class RMSNorm(nn.Module):
    """w * x / sqrt(mean(x^2) + eps), with the statistics in float32."""

    def __init__(self, width: int, epsilon: float) -> None:
        """Start as the identity after normalising."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        weight = self.weight.float()
        return F.rms_norm(x.float(), weight.shape, weight, self.epsilon).to(x.dtype)


class Rotary(NamedTuple):
    """Cosine and sine of every position's angles."""

    cos_SH: Tensor
    sin_SH: Tensor


def rotary(num_positions: int, *, head_size: int, theta: float, device: torch.device) -> Rotary:
    """Angles of rotary embeddings (arXiv 2104.09864): position * theta^(-2j/H), for both halves."""
    exponents = torch.arange(0, head_size, 2, device=device, dtype=torch.float32) / head_size
    positions = torch.arange(num_positions, device=device, dtype=torch.float32)
    angles_SH = torch.outer(positions, theta**-exponents).repeat(1, 2)
    return Rotary(angles_SH.cos(), angles_SH.sin())


def rotate(x_BNSH: Tensor, angles: Rotary) -> Tensor:
    """Turn each (j, j + H/2) pair of components by its angle."""
    first, second = x_BNSH.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return (x_BNSH * angles.cos_SH + turned * angles.sin_SH).to(x_BNSH.dtype)


class Attention(nn.Module):
    """Queries and keys are normalised, whole, per head or not at all, then rotated.

    The paper's models normalise (SPES, section 3.2), those of the Llama family do not.
    """

    def __init__(self, config: ModelConfig) -> None:
        """Leave the projections uninitialised."""
        super().__init__()
        self.head_size = config.head_size
        self.per_head_norm = config.qk_norm == "PerHead"
        query_width = config.num_heads * config.head_size
        kv_width = config.kv_heads * config.head_size
        self.query = nn.Linear(config.width, query_width, bias=False)
        self.key = nn.Linear(config.width, kv_width, bias=False)
        self.value = nn.Linear(config.width, kv_width, bias=False)
        self.output = nn.Linear(query_width, config.width, bias=False)
        self.query_norm = _qk_norm(config, query_width)
        self.key_norm = _qk_norm(config, kv_width)

    def forward(self, x_BSD: Tensor, angles: Rotary, visible_BSS: Tensor | None = None) -> Tensor:
        """Return what every position reads from those before it and itself, or from the visible."""
        query_BNSH = rotate(self._heads(self.query(x_BSD), self.query_norm), angles)
        key_BGSH = rotate(self._heads(self.key(x_BSD), self.key_norm), angles)
        value_BGSH = self._heads(self.value(x_BSD))
        grouped = query_BNSH.shape[1] != key_BGSH.shape[1]
        out_BNSH = F.scaled_dot_product_attention(
            query_BNSH,
            key_BGSH,
            value_BGSH,
            attn_mask=None if visible_BSS is None else visible_BSS.unsqueeze(1),
            is_causal=visible_BSS is None,
            enable_gqa=grouped,
        )
        out: Tensor = self.output(out_BNSH.transpose(1, 2).flatten(2))
        return out

    def _heads(self, x_BSC: Tensor, norm: nn.Module | None = None) -> Tensor:
        """Split channels into heads, (B, heads, S, H), normalised before or after as configured."""
        if norm is not None and not self.per_head_norm:
            x_BSC = norm(x_BSC)
        heads = x_BSC.view(*x_BSC.shape[:-1], -1, self.head_size)
        if norm is not None and self.per_head_norm:
            heads = norm(heads)
        return heads.transpose(1, 2)


def _qk_norm(config: ModelConfig, whole_width: int) -> nn.Module:
    if config.qk_norm == "None":
        return nn.Identity()
    width = config.head_size if config.qk_norm == "PerHead" else whole_width
    return RMSNorm(width, config.norm_epsilon)
