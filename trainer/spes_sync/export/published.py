"""A published `config.json` in our terms. Pure.

Reading refuses what our model cannot express instead of dropping it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    model_validator,
)
from spes_api.model import ModelConfig, QkNorm

from spes_sync.errors import ExportError
from spes_sync.export.layout import Layout


class Described(NamedTuple):
    """What a `config.json` says."""

    config: ModelConfig
    layout: Layout
    tied: bool
    """The head is the embedding."""


def from_hugging_face(settings: Mapping[str, object]) -> Described:
    """The shape and the layout that a `config.json` describes.

    Raises:
        ExportError: another family, a value is missing, or our model has no such feature; names
            the key.
    """
    model_type = settings.get("model_type")
    kind = _KINDS.get(model_type) if isinstance(model_type, str) else None
    if kind is None:
        raise ExportError(
            f"config.json: model_type (got {str(model_type)[:200]}, expected one of "
            f"{', '.join(_KINDS)}); other families have biases, norms or positions that this "
            "model lacks"
        )
    try:
        checked = kind.model_validate(settings)
        return Described(checked.to_config(), kind.layout, checked.tie_word_embeddings)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the settings"
        message = first["msg"].removeprefix("Value error, ")
        raise ExportError(
            f"config.json: {where}: {message} (got {str(first['input'])[:200]})"
        ) from error


class _RopeParameters(BaseModel):
    rope_type: Literal["default"] = "default"
    rope_theta: float


class _Settings(BaseModel, ABC):
    """Keys that decide a logit in every layout; what published folders leave out has a default."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())
    layout: ClassVar[Layout]
    qk_norm: ClassVar[QkNorm]
    default_theta: ClassVar[float | None] = None
    """What the family means by leaving it out."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    rms_norm_eps: float
    rope_parameters: _RopeParameters
    initializer_range: float = 0.02
    hidden_act: Literal["silu"]
    attention_bias: Literal[False] = False
    use_sliding_window: Literal[False] = False
    layer_types: list[Literal["full_attention"]] | None = None
    tie_word_embeddings: bool = False

    @model_validator(mode="before")
    @classmethod
    def _one_form_of_rope(cls, settings: Any) -> Any:
        """Folders of releases before 5 have rope_theta and, if scaled, rope_scaling."""
        if not isinstance(settings, Mapping) or settings.get("rope_parameters"):
            return settings
        if settings.get("rope_scaling"):
            raise ValueError("rope_scaling must be null: rotary scaling is not supported")
        theta = settings.get("rope_theta", cls.default_theta)
        if theta is None:
            raise ValueError("rope_theta or rope_parameters must be given")
        return dict(settings) | {"rope_parameters": {"rope_theta": theta}}

    @abstractmethod
    def experts(self) -> _Experts:
        """The feed-forward part of every layer."""

    def to_config(self) -> ModelConfig:
        """In our terms."""
        experts = self.experts()
        return ModelConfig(
            width=self.hidden_size,
            num_layers=self.num_hidden_layers,
            num_heads=self.num_attention_heads,
            num_kv_heads=self.num_key_value_heads,
            head_width=None if self.layout == "OLMoE" else self.head_dim,
            expert_width=experts.width,
            num_experts=experts.number,
            num_experts_per_token=experts.per_token,
            vocabulary=self.vocab_size,
            rope_theta=self.rope_parameters.rope_theta,
            norm_epsilon=self.rms_norm_eps,
            qk_norm=self.qk_norm,
            renormalize=experts.renormalize,
            init_std=self.initializer_range,
        )


class _Experts(NamedTuple):
    number: int
    per_token: int
    width: int
    renormalize: bool


class _Dense(_Settings):
    """One expert, whose gate is 1."""

    mlp_bias: Literal[False] = False

    def experts(self) -> _Experts:
        """A single one."""
        return _Experts(number=1, per_token=1, width=self.intermediate_size, renormalize=True)


class _Qwen3(_Dense):
    layout = "Qwen3"
    qk_norm = "PerHead"


class _Llama(_Dense):
    layout = "Llama"
    qk_norm = "None"
    default_theta = 10_000.0


class _Olmoe(_Settings):
    layout = "OLMoE"
    qk_norm = "Whole"

    num_experts: int
    num_experts_per_tok: int
    norm_topk_prob: bool
    clip_qkv: None = None

    def experts(self) -> _Experts:
        """As wide as `intermediate_size`."""
        return _Experts(
            number=self.num_experts,
            per_token=self.num_experts_per_tok,
            width=self.intermediate_size,
            renormalize=self.norm_topk_prob,
        )


class _Qwen3Moe(_Settings):
    layout = "Qwen3-MoE"
    qk_norm = "PerHead"

    num_experts: int = Field(validation_alias=AliasChoices("num_experts", "num_local_experts"))
    num_experts_per_tok: int
    norm_topk_prob: bool
    moe_intermediate_size: PositiveInt
    decoder_sparse_step: Literal[1] = 1
    mlp_only_layers: list[int] = Field(default=[], max_length=0)

    def experts(self) -> _Experts:
        """As wide as `moe_intermediate_size`."""
        return _Experts(
            number=self.num_experts,
            per_token=self.num_experts_per_tok,
            width=self.moe_intermediate_size,
            renormalize=self.norm_topk_prob,
        )


class _Mixtral(_Settings):
    layout = "Mixtral"
    qk_norm = "None"

    num_local_experts: int
    num_experts_per_tok: int
    sliding_window: None = None

    def experts(self) -> _Experts:
        """Their gates are always divided by their sum."""
        return _Experts(
            number=self.num_local_experts,
            per_token=self.num_experts_per_tok,
            width=self.intermediate_size,
            renormalize=True,
        )


# By `model_type`.
_KINDS: dict[str, type[_Settings]] = {
    "llama": _Llama,
    "mixtral": _Mixtral,
    "olmoe": _Olmoe,
    "qwen3": _Qwen3,
    "qwen3_moe": _Qwen3Moe,
}
