"""An export is what `transformers` loads: equal logits, equal tokens, generation."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from builders.exported_models import (
    NO_NORM,
    PER_HEAD,
    WHOLE,
    export_settings,
    random_weights,
    write_model,
)
from spes_sync.export import export_model, load_hugging_face
from spes_sync.export.layout import layout_of
from spes_trainer.model.transformer import Transformer
from transformers import AutoModelForCausalLM, AutoTokenizer

ONE = {"num_experts": 1, "num_experts_per_token": 1}
MODELS = {
    "OLMoE": WHOLE,
    "Qwen3-MoE": PER_HEAD,
    "Mixtral": NO_NORM,
    "OLMoE, one expert": WHOLE.model_copy(update=ONE),
    "Qwen3": PER_HEAD.model_copy(update=ONE),
    "Llama": NO_NORM.model_copy(update=ONE),
}
CONFIGS = pytest.mark.parametrize("config", MODELS.values(), ids=MODELS.keys())


@pytest.fixture(autouse=True)
def _never_ask_the_network(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def export(tmp_path, config):
    model = write_model(tmp_path / "model.safetensors", random_weights(config))
    return export_model(model, export_settings(config), tmp_path / "exported").folder


def ours(config) -> Transformer:
    model = Transformer(config)
    weights = {name: torch.from_numpy(value) for name, value in random_weights(config).items()}
    model.load_state_dict(weights)
    return model


@CONFIGS
@torch.no_grad()
def test_logits_equal_those_of_the_trainer(tmp_path, config):
    theirs = AutoModelForCausalLM.from_pretrained(export(tmp_path, config))
    tokens_BS = torch.randint(0, 256, (2, 48), generator=torch.Generator().manual_seed(3))
    assert theirs.dtype == torch.float32
    got, expected = theirs(tokens_BS).logits, ours(config)(tokens_BS).logits_BSV
    assert expected.std() > 0.1
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


@CONFIGS
def test_a_folder_saved_by_transformers_loads_back(tmp_path, config):
    theirs = AutoModelForCausalLM.from_pretrained(export(tmp_path, config))
    theirs.save_pretrained(tmp_path / "saved")
    loaded, tensors = load_hugging_face(tmp_path / "saved")
    weights = random_weights(config)
    if layout_of(config) in ("Qwen3", "Llama"):
        weights |= {
            name: np.zeros_like(value) for name, value in weights.items() if "router" in name
        }
    assert {n: v.tobytes() for n, v in tensors} == {n: v.tobytes() for n, v in weights.items()}
    assert loaded.rope_theta == config.rope_theta
    assert loaded.norm_epsilon == config.norm_epsilon


def test_half_precision_folders_are_widened_exactly(tmp_path):
    theirs = AutoModelForCausalLM.from_pretrained(export(tmp_path, WHOLE), dtype=torch.bfloat16)
    theirs.save_pretrained(tmp_path / "saved")
    _, tensors = load_hugging_face(tmp_path / "saved")
    for name, value in tensors:
        expected = torch.from_numpy(random_weights(WHOLE)[name]).bfloat16().float().numpy()
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize(
    "text",
    ["", "hello  world .\n\tx !", " leading", "e\u0301 \u00e9 漢字 \U0001f389\u200d\x00\x7f\r\n"],
    ids=["empty", "spaces", "leading space", "decomposed and wide"],
)
def test_auto_tokenizer_gives_the_bytes_and_the_text_back(tmp_path, text):
    tokenizer = AutoTokenizer.from_pretrained(export(tmp_path, WHOLE))
    ids = tokenizer.encode(text)
    assert ids == list(text.encode())
    assert tokenizer.decode(ids) == text
    assert tokenizer.all_special_tokens == []


def test_every_byte_is_a_token(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(export(tmp_path, WHOLE))
    every_character = "".join(map(chr, [*range(0x800), *range(0x10000, sys.maxunicode, 0x1000)]))
    assert tokenizer.encode(every_character) == list(every_character.encode())
    assert len(tokenizer) == 256


@CONFIGS
def test_generation_runs_to_the_asked_length(tmp_path, config):
    folder = export(tmp_path, config)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    prompt = tokenizer("def ", return_tensors="pt")
    output = model.generate(**prompt, max_new_tokens=8, do_sample=False)
    assert output.shape == (1, 12)
