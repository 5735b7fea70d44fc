"""Dense models: numExperts: 1 computes what `transformers` computes, and so do upcycled copies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from builders.datasets import write_tokenizer
from builders.dense_models import write_dense
from builders.exported_models import PER_HEAD, export_settings, random_weights, write_model
from spes_api.job import TokenizerSpec
from spes_sync.export import export_model, load_hugging_face
from spes_trainer.model.transformer import Transformer
from spes_trainer.upcycle import UpcycleOptions, upcycle
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

TOKENS = torch.randint(0, 256, (2, 24), generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def theirs(folder: Path):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model(TOKENS).logits


@torch.no_grad()
def ours(folder: Path):
    config, tensors = load_hugging_face(folder)
    model = Transformer(config)
    own = dict(model.named_parameters())
    for name, value in tensors:
        own[name].copy_(torch.from_numpy(value))
    return model(TOKENS).logits_BSV


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize(
    ("experts", "per_token"), [(1, 1), (4, 2)], ids=["one expert is a dense model", "copies"]
)
def test_without_noise_the_logits_are_the_dense_models(tmp_path, tied, experts, per_token):
    dense = write_dense(tmp_path / "dense", tied=tied)
    options = UpcycleOptions(num_experts=experts, num_experts_per_token=per_token, noise_std=0.0)
    made, _ = upcycle(dense, tmp_path / "moe", options)
    expected = theirs(dense)
    torch.testing.assert_close(ours(made.folder), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(theirs(made.folder), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize(
    ("experts", "family"), [(1, "llama"), (4, "mixtral")], ids=["dense", "mixture"]
)
def test_a_llama_made_by_transformers_keeps_its_logits(tmp_path, tied, experts, family):
    """Grouped queries, a head size of its own, another rotary base; there and back."""
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 2, "vocab_size": 256}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    rope = {"rope_type": "default", "rope_theta": 5000.0}
    config = LlamaConfig(
        **shape, **heads, rope_parameters=rope, tie_word_embeddings=tied, initializer_range=0.2
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path / "dense")
    options = UpcycleOptions(num_experts=experts, noise_std=0.0)
    made, _ = upcycle(tmp_path / "dense", tmp_path / "moe", options)
    expected = theirs(tmp_path / "dense")
    assert expected.std() > 0.1
    assert json.loads((made.folder / "config.json").read_text())["model_type"] == family
    torch.testing.assert_close(ours(made.folder), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(theirs(made.folder), expected, rtol=1e-4, atol=1e-4)


def test_half_precision_folders_are_upcycled(tmp_path):
    dense = write_dense(tmp_path / "dense")
    model = AutoModelForCausalLM.from_pretrained(dense, dtype=torch.bfloat16)
    model.save_pretrained(tmp_path / "half")
    options = UpcycleOptions(num_experts=1, num_experts_per_token=1, noise_std=0.0)
    made, _ = upcycle(tmp_path / "half", tmp_path / "moe", options)
    torch.testing.assert_close(ours(made.folder), theirs(tmp_path / "half"), rtol=1e-4, atol=1e-4)


def test_auto_tokenizer_reads_a_jobs_own_tokenizer(tmp_path):
    config = PER_HEAD.model_copy(update={"vocabulary": 320})
    model = write_model(tmp_path / "model.safetensors", random_weights(config))
    file = write_tokenizer(tmp_path / "tokenizer.json")
    spec = TokenizerSpec(path="tokenizer.json")
    settings = export_settings(config, tokenizer=spec, file=file)
    tokenizer = AutoTokenizer.from_pretrained(export_model(model, settings, tmp_path / "to").folder)
    assert tokenizer.decode(tokenizer.encode("the quick fox")) == "the quick fox"
    assert tokenizer.eos_token_id == 0
