"""What an exported `config.json` says: our ModelConfig in the terms of its layout. Pure.

Every value that changes a logit is written out, so no default of a later `transformers` can change
the model. `published` reads such settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from spes_api.model import ModelConfig

from spes_sync.export.layout import Layout, layout_of

_MODEL_TYPES: Mapping[Layout, tuple[str, str]] = MappingProxyType(
    {
        "OLMoE": ("olmoe", "OlmoeForCausalLM"),
        "Qwen3": ("qwen3", "Qwen3ForCausalLM"),
        "Qwen3-MoE": ("qwen3_moe", "Qwen3MoeForCausalLM"),
        "Llama": ("llama", "LlamaForCausalLM"),
        "Mixtral": ("mixtral", "MixtralForCausalLM"),
    }
)


def to_hugging_face(config: ModelConfig, *, sequence_tokens: int) -> dict[str, object]:
    """The content of `config.json`.

    Raises:
        ExportError: there is no layout for the model.
    """
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
        "use_cache": True,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    return common | _of_layout(config, layout)


def generation_settings() -> dict[str, object]:
    """The content of `generation_config.json`: no special tokens, so nothing ends a text early."""
    return {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "use_cache": True}


def _of_layout(config: ModelConfig, layout: Layout) -> dict[str, object]:
    whole_context: dict[str, object] = {"use_sliding_window": False, "sliding_window": None}
    experts: dict[str, object] = {
        "num_experts": config.num_experts,
        "num_experts_per_tok": config.num_experts_per_token,
        "norm_topk_prob": config.renormalize,
        "output_router_logits": False,
    }
    match layout:
        case "OLMoE":
            return experts | {"clip_qkv": None}
        case "Qwen3":
            return whole_context
        case "Qwen3-MoE":
            every_layer = {"decoder_sparse_step": 1, "mlp_only_layers": []}
            width = {"moe_intermediate_size": config.expert_width}
            return experts | whole_context | every_layer | width
        case "Llama":
            return {"mlp_bias": False}
        case "Mixtral":
            return {
                "num_local_experts": config.num_experts,
                "num_experts_per_tok": config.num_experts_per_token,
                "output_router_logits": False,
                "router_jitter_noise": 0.0,
                "sliding_window": None,
            }
