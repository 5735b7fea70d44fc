"""Shapes of models, their parameter counts and the named presets."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from spes_api.schema_base import ApiModel, Cel, cel_rules

PresetName = Literal["moe-tiny", "moe-1b", "moe-2b", "moe-7b", "moe-9b"]
QkNorm = Literal["Whole", "PerHead", "None"]


class ModelConfig(ApiModel):
    """Shape of a decoder-only mixture-of-experts model (SPES, section 3.2)."""

    model_config = cel_rules(
        Cel(
            "has(self.headWidth) || self.width % self.numHeads == 0",
            "width must be a multiple of numHeads",
        ),
        Cel(
            "!has(self.numKvHeads) || self.numHeads % self.numKvHeads == 0",
            "numHeads must be a multiple of numKvHeads",
        ),
        Cel(
            "(has(self.headWidth) ? self.headWidth : self.width / self.numHeads) % 2 == 0",
            "headWidth must be even for rotary embeddings",
        ),
        Cel(
            "self.numExpertsPerToken <= self.numExperts",
            "numExpertsPerToken must be at most numExperts",
        ),
        Cel(
            "(has(self.qkNorm) ? self.qkNorm : 'Whole') != 'Whole' || !has(self.headWidth) || "
            "self.numHeads * self.headWidth == self.width",
            "with qkNorm Whole numHeads x headWidth must be width",
        ),
        Cel(
            "!has(self.qkNorm) || self.qkNorm != 'None' || self.numExperts == 1 || "
            "(has(self.renormalize) && self.renormalize)",
            "with qkNorm None and several experts renormalize must be true",
        ),
        Cel(
            "!has(self.qkNorm) || self.qkNorm != 'None' || self.numExperts > 1 || "
            "self.width % self.numHeads == 0",
            "with qkNorm None width must be a multiple of numHeads",
        ),
    )

    width: Annotated[int, Field(ge=8, le=65_536)]
    """d: size of the residual stream."""
    num_layers: Annotated[int, Field(ge=1, le=512)]
    """L."""
    num_heads: Annotated[int, Field(ge=1, le=512)]
    """Query heads."""
    num_kv_heads: Annotated[int, Field(ge=1, le=512)] | None = None
    """Key and value heads. Absent: numHeads."""
    head_width: Annotated[int, Field(ge=2, le=1024)] | None = None
    """Size of one head. Absent: width / numHeads."""
    expert_width: Annotated[int, Field(ge=8, le=262_144)]
    """f: hidden size of one expert."""
    num_experts: Annotated[int, Field(ge=1, le=4096)]
    """M, per layer."""
    num_experts_per_token: Annotated[int, Field(ge=1, le=64)]
    """k."""
    vocabulary: Annotated[int, Field(ge=2, le=1_048_576)]
    """Token ids."""
    rope_theta: Annotated[float, Field(gt=0)] = 10_000.0
    """Base of the rotary embedding's wavelengths."""
    norm_epsilon: Annotated[float, Field(gt=0)] = 1.0e-6
    """Added to the mean square in RMSNorm."""
    qk_norm: QkNorm = "Whole"
    """RMSNorm of queries and keys: over the whole projected vector, over each head, or none."""
    renormalize: bool = False
    """Divide the kept gates by their sum."""
    init_std: Annotated[float, Field(gt=0)] = 0.02
    """Standard deviation of the first weights."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.head_width is None and self.width % self.num_heads:
            raise ValueError(
                f"width must be a multiple of numHeads (got {self.width} and {self.num_heads})"
            )
        if self.num_heads % self.kv_heads:
            raise ValueError(
                "numHeads must be a multiple of numKvHeads "
                f"(got {self.num_heads} and {self.kv_heads})"
            )
        if self.head_size % 2:
            raise ValueError(f"headWidth must be even for rotary embeddings (got {self.head_size})")
        if self.num_experts_per_token > self.num_experts:
            raise ValueError(
                "numExpertsPerToken must be at most numExperts "
                f"(got {self.num_experts_per_token} and {self.num_experts})"
            )
        self._require_layout()
        return self

    def _require_layout(self) -> None:
        """Refuse at once what no published layout could hold once it is trained."""
        if self.qk_norm == "Whole" and self.num_heads * self.head_size != self.width:
            raise ValueError(
                "with qkNorm Whole numHeads x headWidth must be width, as in the OLMoE layout (got "
                f"{self.num_heads} x {self.head_size}, expected {self.width}); qkNorm: PerHead "
                "allows any headWidth"
            )
        if self.qk_norm != "None":
            return
        if self.num_experts > 1 and not self.renormalize:
            raise ValueError(
                "with qkNorm None and several experts renormalize must be true, as in the Mixtral "
                "layout (got false); with raw gates set qkNorm: Whole or PerHead"
            )
        if self.num_experts == 1 and self.width % self.num_heads:
            raise ValueError(
                "with qkNorm None width must be a multiple of numHeads, as in the Llama layout "
                f"(got {self.width} and {self.num_heads}); qkNorm: PerHead allows any headWidth"
            )

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
        qk_norms = {"Whole": q + kv, "PerHead": 2 * self.head_size, "None": 0}
        norms = 2 * d + qk_norms[self.qk_norm]
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
    """The shape of a preset.

    1B, 7B and 9B are the released configurations of SPES (arXiv 2602.11543); tiny is ours, for
    laptops; 2B is inferred.
    """
    return _PRESETS[name]
