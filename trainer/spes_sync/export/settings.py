"""`config.json`, both ways: our ModelConfig as OLMoE's or Qwen3-MoE's settings. Pure.

Every value that changes a logit is written out, so no default of a later `transformers` can change
the model. Reading refuses what our model cannot express instead of dropping it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, Self, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator
from spes_api.model import ModelConfig

from spes_sync.errors import ExportError

Layout = Literal["OLMoE", "Qwen3-MoE"]

_MODEL_TYPES: dict[Layout, tuple[str, str]] = {
    "OLMoE": ("olmoe", "OlmoeForCausalLM"),
    "Qwen3-MoE": ("qwen3_moe", "Qwen3MoeForCausalLM"),
}


def layout_of(config: ModelConfig) -> Layout:
    """The layout that has this model's QK-norm.

    Raises:
        ExportError: the shape exists in neither layout.
    """
    if config.qk_norm == "PerHead":
        return "Qwen3-MoE"
    if config.num_heads * config.head_size != config.width:
        raise ExportError(
            f"numHeads x headWidth must be width for the OLMoE layout (got {config.num_heads} x "
            f"{config.head_size}, expected {config.width}); qkNorm: PerHead allows any headWidth"
        )
    return "OLMoE"


def to_hugging_face(config: ModelConfig, *, sequence_tokens: int) -> dict[str, object]:
    """The content of `config.json`."""
    layout = layout_of(config)
    model_type, architecture = _MODEL_TYPES[layout]
    common: dict[str, object] = {
        "architectures": [architecture],
        "model_type": model_type,
        "dtype": "float32",
        "vocab_size": config.vocabulary,
        "hidden_size": config.width,
        "intermediate_size": config.expert_width,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_size,
        "num_experts": config.num_experts,
        "num_experts_per_tok": config.num_experts_per_token,
        "norm_topk_prob": config.renormalize,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_epsilon,
        # Releases before 5 read rope_theta, later ones rope_parameters.
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "max_position_embeddings": sequence_tokens,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": config.init_std,
        "tie_word_embeddings": False,
        "output_router_logits": False,
        "use_cache": True,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    if layout == "OLMoE":
        return common | {"clip_qkv": None}
    return common | {
        "moe_intermediate_size": config.expert_width,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "use_sliding_window": False,
        "sliding_window": None,
    }


def generation_settings() -> dict[str, object]:
    """The content of `generation_config.json`: no special tokens, so nothing ends a text early."""
    return {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "use_cache": True}


def from_hugging_face(settings: Mapping[str, object]) -> ModelConfig:
    """The shape that a `config.json` describes.

    Raises:
        ExportError: a value is missing, or our model has no such feature; names the key.
    """
    return read_settings(_MoeSettings, settings)[1]


def read_settings(
    kind: type[Settings], settings: Mapping[str, object]
) -> tuple[Settings, ModelConfig]:
    """Check the content of a `config.json`; return it and the shape that it describes.

    Raises:
        ExportError: a value is missing or not one of those that are supported; names the key.
    """
    try:
        checked = kind.model_validate(settings)
        return checked, checked.to_config()
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


class CommonSettings(BaseModel, ABC):
    """Keys that decide a logit in every layout; what published folders leave out has a default."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())

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

    @model_validator(mode="before")
    @classmethod
    def _one_form_of_rope(cls, settings: Any) -> Any:
        """Folders of releases before 5 have rope_theta and, if scaled, rope_scaling."""
        if not isinstance(settings, Mapping) or settings.get("rope_parameters"):
            return settings
        if settings.get("rope_scaling"):
            raise ValueError("rope_scaling must be null: rotary scaling is not supported")
        if "rope_theta" not in settings:
            raise ValueError("rope_theta or rope_parameters must be given")
        return dict(settings) | {"rope_parameters": {"rope_theta": settings["rope_theta"]}}

    @abstractmethod
    def to_config(self) -> ModelConfig:
        """In our terms."""


Settings = TypeVar("Settings", bound=CommonSettings)


class _MoeSettings(CommonSettings):
    """OLMoE's and Qwen3-MoE's."""

    model_type: Literal["olmoe", "qwen3_moe"]
    moe_intermediate_size: int | None = None
    num_experts: int = Field(validation_alias=AliasChoices("num_experts", "num_local_experts"))
    num_experts_per_tok: int
    norm_topk_prob: bool
    clip_qkv: None = None
    decoder_sparse_step: Literal[1] = 1
    mlp_only_layers: list[int] = Field(default=[], max_length=0)
    tie_word_embeddings: Literal[False] = False

    @model_validator(mode="after")
    def _expert_size_is_known(self) -> Self:
        if self.model_type == "qwen3_moe" and self.moe_intermediate_size is None:
            raise ValueError("moe_intermediate_size must be given")
        return self

    def to_config(self) -> ModelConfig:
        """In our terms."""
        olmoe = self.model_type == "olmoe"
        return ModelConfig(
            width=self.hidden_size,
            num_layers=self.num_hidden_layers,
            num_heads=self.num_attention_heads,
            num_kv_heads=self.num_key_value_heads,
            head_width=None if olmoe else self.head_dim,
            expert_width=(self.intermediate_size if olmoe else self.moe_intermediate_size) or 0,
            num_experts=self.num_experts,
            num_experts_per_token=self.num_experts_per_tok,
            vocabulary=self.vocab_size,
            rope_theta=self.rope_parameters.rope_theta,
            norm_epsilon=self.rms_norm_eps,
            qk_norm="Whole" if olmoe else "PerHead",
            renormalize=self.norm_topk_prob,
            init_std=self.initializer_range,
        )
