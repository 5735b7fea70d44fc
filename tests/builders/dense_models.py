"""Small dense models as Hugging Face folders, as strangers publish them: Qwen3 and Llama."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD, HIDDEN, VOCABULARY = 2, 32, 4, 2, 16, 24, 256
SETTINGS = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
    "max_position_embeddings": 128,
    "attention_bias": False,
    "use_sliding_window": False,
    "initializer_range": 0.02,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def dense_weights(
    *, tied: bool, qk_norm: bool = True, seed: int = 0
) -> dict[str, NDArray[np.float32]]:
    """Under their published names; large enough that every one of them changes the logits."""
    query, kv = HEADS * HEAD, KV_HEADS * HEAD
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCABULARY, WIDTH),
        "model.norm.weight": (WIDTH,),
    }
    if not tied:
        shapes["lm_head.weight"] = (VOCABULARY, WIDTH)
    for layer in range(LAYERS):
        block = {
            "input_layernorm": (WIDTH,),
            "post_attention_layernorm": (WIDTH,),
            "self_attn.q_proj": (query, WIDTH),
            "self_attn.k_proj": (kv, WIDTH),
            "self_attn.v_proj": (kv, WIDTH),
            "self_attn.o_proj": (WIDTH, query),
            "self_attn.q_norm": (HEAD,),
            "self_attn.k_norm": (HEAD,),
            "mlp.gate_proj": (HIDDEN, WIDTH),
            "mlp.up_proj": (HIDDEN, WIDTH),
            "mlp.down_proj": (WIDTH, HIDDEN),
        }
        if not qk_norm:
            del block["self_attn.q_norm"], block["self_attn.k_norm"]
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in block.items()}
    random = np.random.default_rng(seed)
    return {
        name: random.normal(1.0 if len(shape) == 1 else 0.0, 0.2, shape).astype("f4")
        for name, shape in shapes.items()
    }


def write_dense(folder: Path, *, tied: bool = False, **settings) -> Path:
    """The folder; keyword arguments change its config.json."""
    folder.mkdir(parents=True)
    content = SETTINGS | {"tie_word_embeddings": tied} | settings
    weights = dense_weights(tied=tied, qk_norm=content["model_type"] == "qwen3")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(content))
    return folder
