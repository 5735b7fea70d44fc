"""Routing, grouped experts and their gradients, against a dense reference."""

from __future__ import annotations

import pytest
import torch
from builders.closeness import assert_close
from builders.nano import NANO, nano_model
from spes_api.model import preset_config
from spes_sync.manifest import expert_of
from spes_trainer.errors import ConfigError
from spes_trainer.model.grouped_linear import grouped_linear
from spes_trainer.model.moe import Experts, route
from spes_trainer.model.transformer import Transformer


def make_experts(owned=(0, 1, 2, 3), *, seed=0) -> Experts:
    torch.manual_seed(seed)
    experts = Experts(4, 8, 16)
    for index, expert in enumerate(experts):
        for parameter in expert.parameters():
            torch.nn.init.normal_(parameter)
        expert.requires_grad_(index in owned)
    return experts


def dense_reference(x_TD, experts, routing):
    """Every expert on every token, weighted by a dense matrix of gates."""
    gates_TE = torch.zeros(x_TD.shape[0], len(experts), dtype=x_TD.dtype)
    gates_TE = gates_TE.scatter(1, routing.expert_TK, routing.weight_TK)
    outputs = [
        (torch.nn.functional.silu(x_TD @ e.w1.t()) * (x_TD @ e.v1.t())) @ e.w2 for e in experts
    ]
    return sum(gates_TE[:, i : i + 1] * out for i, out in enumerate(outputs))


def test_gates_are_probabilities_over_all_experts():
    routing = route(
        torch.tensor([[2.0, 1.0, 0.0, -1.0]]), num_experts_per_token=2, renormalize=False
    )
    assert routing.weight_TK.tolist()[0] == pytest.approx([0.643914, 0.236883], abs=1e-6)
    assert routing.weight_TK.sum().item() == pytest.approx(0.880797, abs=1e-6)


def test_renormalised_gates_sum_to_one():
    routing = route(
        torch.tensor([[2.0, 1.0, 0.0, -1.0]]), num_experts_per_token=2, renormalize=True
    )
    assert routing.weight_TK.tolist()[0] == pytest.approx([0.731059, 0.268941], abs=1e-6)


def test_ties_go_to_the_lowest_expert():
    logits_TE = torch.zeros(50, 16)
    logits_TE[:, 7] = logits_TE[:, 9] = 1.0
    routing = route(logits_TE, num_experts_per_token=4, renormalize=False)
    assert routing.expert_TK.unique(dim=0).tolist() == [[7, 9, 0, 1]]


@pytest.mark.parametrize("owned", [(), (2,), (1, 3), (0, 1, 2, 3)], ids=str)
def test_experts_equal_the_dense_reference(owned):
    experts, reference = make_experts(owned), make_experts()
    x_TD = torch.randn(24, 8, requires_grad=True)
    x_reference = x_TD.detach().clone().requires_grad_()
    logits_TE = torch.randn(24, 4, requires_grad=True)
    logits_reference = logits_TE.detach().clone().requires_grad_()

    out = experts(x_TD, route(logits_TE, num_experts_per_token=2, renormalize=False))
    routing = route(logits_reference, num_experts_per_token=2, renormalize=False)
    expected = dense_reference(x_reference, reference, routing)
    assert_close(out, expected, rtol=1e-4, atol=1e-5)

    probe = torch.randn_like(out)
    (out * probe).sum().backward()
    (expected * probe).sum().backward()
    assert_close(x_TD.grad, x_reference.grad, rtol=1e-3, atol=1e-4)
    assert_close(logits_TE.grad, logits_reference.grad, rtol=1e-3, atol=1e-4)
    for index, (mine, theirs) in enumerate(zip(experts, reference, strict=True)):
        for got, want in zip(mine.parameters(), theirs.parameters(), strict=True):
            if index in owned:
                assert_close(got.grad, want.grad, rtol=1e-3, atol=1e-4)
            else:
                assert got.grad is None


def test_no_routed_token_is_dropped():
    """All tokens on one expert: the worst case of any capacity limit."""
    experts = make_experts()
    x_TD, logits_TE = torch.randn(64, 8), torch.tensor([[9.0, 8.0, 0.0, 0.0]]).repeat(64, 1)
    routing = route(logits_TE, num_experts_per_token=2, renormalize=False)
    assert_close(
        experts(x_TD, routing), dense_reference(x_TD, experts, routing), rtol=1e-4, atol=1e-5
    )


def test_an_owned_expert_without_tokens_gets_a_zero_gradient():
    experts = make_experts((3,))
    logits_TE = torch.tensor([[9.0, 8.0, 0.0, 0.0]]).repeat(8, 1)
    routing = route(logits_TE, num_experts_per_token=2, renormalize=False)
    experts(torch.randn(8, 8, requires_grad=True), routing).sum().backward()
    assert experts[3].w1.grad is not None
    assert experts[3].w1.grad.abs().max() == 0


def test_order_of_tokens_does_not_matter():
    experts, x_TD, logits_TE = make_experts((0, 2)), torch.randn(32, 8), torch.randn(32, 4)
    shuffled = torch.randperm(32)
    out = experts(x_TD, route(logits_TE, num_experts_per_token=2, renormalize=False))
    permuted = experts(
        x_TD[shuffled], route(logits_TE[shuffled], num_experts_per_token=2, renormalize=False)
    )
    assert_close(permuted, out[shuffled], rtol=1e-5, atol=1e-6)


def test_ownership_does_not_change_the_output():
    x_TD = torch.randn(32, 8)
    routing = route(torch.randn(32, 4), num_experts_per_token=2, renormalize=False)
    assert_close(make_experts((1,))(x_TD, routing), make_experts()(x_TD, routing), rtol=0, atol=0)


def test_expanded_gradients_are_accepted():
    """A sum's gradient is an expanded scalar, which grouped products refuse."""
    weight = torch.ones(8, 8, requires_grad=True)
    offsets_E = torch.tensor([4], dtype=torch.int32)
    grouped_linear(
        torch.ones(4, 8), offsets_E, [weight], num_owned=1, transposed=True
    ).sum().backward()
    assert weight.grad is not None
    assert (weight.grad == 4).all()


@pytest.mark.parametrize("preset", ["moe-tiny", "moe-1b", "moe-2b", "moe-7b", "moe-9b"])
def test_every_preset_has_the_planned_parameters(preset):
    """The planner's formula and the real layout agree, shared and per expert."""
    config = preset_config(preset)
    with torch.device("meta"):
        model = Transformer(config)
    counts: dict[int, int] = {}
    for name, parameter in model.named_parameters():
        counts[expert_of(name)] = counts.get(expert_of(name), 0) + parameter.numel()
    assert counts.pop(-1) == config.sizes.shared
    assert set(counts) == set(range(config.num_experts))
    assert set(counts.values()) == {config.sizes.one_expert}


def test_widths_that_grouped_products_refuse_are_named():
    with pytest.raises(ConfigError, match=r"model.config.expertWidth must be a multiple of 8"):
        Transformer(NANO.model_copy(update={"expert_width": 36}))


def test_the_seed_alone_decides_the_weights():
    first, same, other = nano_model(seed=1), nano_model(seed=1), nano_model(seed=2)
    assert all(
        torch.equal(a, b) for a, b in zip(first.parameters(), same.parameters(), strict=True)
    )
    assert not torch.equal(first.head.weight, other.head.weight)
    assert first.head.weight.abs().max() <= 3 * NANO.init_std
