"""Shapes of models, their parameter counts and the named presets."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from spes_api.schema_base import ApiModel

PresetName = Literal["moe-tiny", "moe-1b", "moe-2b", "moe-7b", "moe-9b"]


class ModelConfig(ApiModel):
    """Shape of a decoder-only mixture-of-experts model (SPES, section 4.1)."""

    width: Annotated[int, Field(ge=8, le=65_536)]
    """d: size of the residual stream."""
    num_layers: Annotated[int, Field(ge=1, le=512)]
    num_heads: Annotated[int, Field(ge=1, le=512)]
    num_kv_heads: Annotated[int, Field(ge=1, le=512)] | None = None
    """Absent: num_heads."""
    head_width: Annotated[int, Field(ge=2, le=1024)] | None = None
    """Absent: width / num_heads."""
    expert_width: Annotated[int, Field(ge=8, le=262_144)]
    """f: hidden size of one expert."""
    num_experts: Annotated[int, Field(ge=1, le=4096)]
    """M, per layer."""
    num_experts_per_token: Annotated[int, Field(ge=1, le=64)]
    """k."""
    vocabulary: Annotated[int, Field(ge=2, le=1_048_576)]
    rope_theta: Annotated[float, Field(gt=0)] = 10_000.0
    norm_epsilon: Annotated[float, Field(gt=0)] = 1.0e-6
    qk_norm: Literal["Whole", "PerHead"] = "Whole"
    """RMSNorm over the whole projected vector, or over each head."""
    renormalize: bool = False
    """Divide the kept gates by their sum."""
    init_std: Annotated[float, Field(gt=0)] = 0.02

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.head_width is None and self.width % self.num_heads:
            raise ValueError(
                f"width must be a multiple of numHeads (got {self.width} and {self.num_heads})"
            )
        if self.num_heads % self.kv_heads:
            raise ValueError(
                f"numHeads must be a multiple of numKvHeads (got {self.num_heads} and {self.kv_heads})"
            )
        if self.head_size % 2:
            raise ValueError(f"headWidth must be even for rotary embeddings (got {self.head_size})")
        if self.num_experts_per_token > self.num_experts:
            raise ValueError(
                f"numExpertsPerToken must be at most numExperts (got {self.num_experts_per_token} and {self.num_experts})"
            )
        return self

    @property
    def kv_heads(self) -> int:
        """Key and value heads, the default resolved."""
        return self.num_kv_heads or self.num_heads

    @property
    def head_size(self) -> int:
        """Size of one head, the default resolved."""
        return self.head_width or self.width // self.num_heads

    @property
    def sizes(self) -> ModelSizes:
        """Parameter counts."""
        d, q, kv = self.width, self.num_heads * self.head_size, self.kv_heads * self.head_size
        norms = 2 * d + (q + kv if self.qk_norm == "Whole" else 2 * self.head_size)
        block = d * q + 2 * d * kv + q * d + norms + d * self.num_experts
        shared = 2 * self.vocabulary * d + d + self.num_layers * block
        return ModelSizes(
            shared=shared,
            one_expert=3 * d * self.expert_width * self.num_layers,
            num_experts=self.num_experts,
        )


class ModelSizes(NamedTuple):
    """Parameter counts: |psi|, one expert in all layers, M."""

    shared: int
    one_expert: int
    num_experts: int

    @property
    def all_experts(self) -> int:
        """|Phi|."""
        return self.one_expert * self.num_experts

    @property
    def total(self) -> int:
        """T = |psi| + |Phi|."""
        return self.shared + self.all_experts


_PRESETS: dict[PresetName, ModelConfig] = {
    "moe-tiny": ModelConfig(
        width=128,
        num_layers=2,
        num_heads=4,
        expert_width=256,
        num_experts=8,
        num_experts_per_token=2,
        vocabulary=256,
        init_std=0.06,
    ),
    "moe-1b": ModelConfig(
        width=768,
        num_layers=12,
        num_heads=12,
        expert_width=2048,
        num_experts=16,
        num_experts_per_token=2,
        vocabulary=151_665,
        rope_theta=500_000.0,
    ),
    # Inferred: the paper gives only 0.7 B trained of 2.1 B with 16 experts on 16 nodes.
    "moe-2b": ModelConfig(
        width=1536,
        num_layers=16,
        num_heads=12,
        expert_width=1280,
        num_experts=16,
        num_experts_per_token=2,
        vocabulary=151_665,
        rope_theta=500_000.0,
    ),
    "moe-7b": ModelConfig(
        width=2048,
        num_layers=16,
        num_heads=16,
        expert_width=2048,
        num_experts=32,
        num_experts_per_token=4,
        vocabulary=151_665,
        rope_theta=32_000.0,
    ),
    "moe-9b": ModelConfig(
        width=2048,
        num_layers=28,
        num_heads=16,
        num_kv_heads=8,
        head_width=128,
        expert_width=6144,
        num_experts=8,
        num_experts_per_token=2,
        vocabulary=151_936,
        rope_theta=1_000_000.0,
        qk_norm="PerHead",
        renormalize=True,
    ),
}


def preset_config(name: PresetName) -> ModelConfig:
    """The shape of a preset (1B, 7B, 9B: the released configurations of SPES; tiny: ours; 2B: inferred)."""
    return _PRESETS[name]
