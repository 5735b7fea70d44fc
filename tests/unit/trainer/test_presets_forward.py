"""The presets of billions of parameters run, on tensors that have shapes and no contents."""

import pytest
import torch
from spes_api.model import preset_config
from spes_trainer.model.transformer import Transformer


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["moe-1b", "moe-2b", "moe-7b", "moe-9b"])
def test_a_preset_runs_forward_and_backward_with_two_experts_owned(name, monkeypatch):
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: False)  # unknown to meta tensors
    config = preset_config(name)
    with torch.device("meta"):
        model = Transformer(config)
        model.own([0, 1])
        output = model(torch.zeros(2, 16, dtype=torch.long))
        output.logits_BSV.sum().backward()
    assert tuple(output.logits_BSV.shape) == (2, 16, config.vocabulary)
    assert len(output.routings) == config.num_layers
    sizes = config.sizes
    parameters = dict(model.named_parameters())
    assert sum(p.numel() for p in parameters.values()) == sizes.shared + sizes.all_experts
    trained = sum(p.numel() for p in parameters.values() if p.grad is not None)
    assert trained == sizes.shared + 2 * sizes.one_expert
