"""Cross-entropy, z-loss, load balance and router z-loss against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch
from builders.closeness import assert_close
from builders.nano import nano_stepper, nano_tokens
from spes_api.job import LossSpec
from spes_trainer.model.losses import load_balance, router_z, token_losses
from spes_trainer.model.moe import route

ROWS = torch.tensor([[2.0, 1, 0, -1], [0, 1, 2, -1], [1, 1, 1, 1], [3, 0, 0, 0]])
COEFFICIENTS = LossSpec()


def routed(logits_TE):
    return route(logits_TE, num_experts_per_token=2, renormalize=False)


def test_load_balance_of_uneven_routing():
    routing = routed(ROWS)
    assert torch.bincount(routing.expert_TK.reshape(-1), minlength=4).tolist() == [3, 4, 1, 0]
    loss = COEFFICIENTS.load_balance * load_balance([routing]).item()
    assert loss == pytest.approx(0.012057535252, rel=1e-6)


def test_load_balance_of_uniform_routing_is_one():
    logits_TE = 20 * torch.eye(4) + 20 * torch.eye(4).roll(1, 0)
    assert load_balance([routed(logits_TE)]).item() == pytest.approx(1.0, rel=1e-6)


def test_load_balance_doubles_when_half_the_experts_are_used():
    logits_TE = torch.tensor([[30.0, 30.0, 0.0, 0.0]]).repeat(8, 1)
    assert COEFFICIENTS.load_balance * load_balance([routed(logits_TE)]).item() == pytest.approx(
        0.02, rel=1e-6
    )


def test_load_balance_is_averaged_and_router_z_summed_over_layers():
    routing = routed(ROWS)
    assert load_balance([routing] * 3).item() == pytest.approx(load_balance([routing]).item())
    assert router_z([routing] * 3).item() == pytest.approx(3 * router_z([routing]).item())


def test_router_z_is_the_mean_squared_logsumexp():
    assert router_z([routed(ROWS)]).item() == pytest.approx(6.864517147769, rel=1e-6)


def test_counts_carry_no_gradient():
    logits_TE = ROWS.clone().requires_grad_()
    load_balance([routed(logits_TE)]).backward()
    counts_E = torch.tensor([3.0, 4.0, 1.0, 0.0])
    reference = ROWS.clone().requires_grad_()
    (0.5 * (counts_E * torch.softmax(reference, -1).mean(0)).sum()).backward()
    assert_close(logits_TE.grad, reference.grad)


def test_cross_entropy_and_z_loss_of_one_token():
    logits_BSV = torch.tensor([[[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]])
    nll, lse_squared = token_losses(logits_BSV, torch.tensor([[0, 2]]))
    assert nll.tolist() == [[pytest.approx(0.407605964, rel=1e-6)]]
    assert 1e-4 * lse_squared.item() == pytest.approx(0.001161177841, rel=1e-6)


def gradients(micro_batch_tokens):
    stepper = nano_stepper(
        microBatchTokens=micro_batch_tokens,
        losses={"loadBalance": 0, "zLoss": 1e-4, "routerZLoss": 1e-3},
    )
    kept = {}
    stepper.optimizer.step = lambda _rate: kept.update(
        {n: p.grad.clone() for n, p in stepper.model.named_parameters()}
    )
    outcome = stepper.step(nano_tokens(), rate=0.0)
    return outcome, kept


def test_gradient_does_not_depend_on_the_micro_batches():
    """Without load balance, which is a statistic of each micro-batch by definition."""
    whole, cut = gradients(64), gradients(16)
    assert whole[0].loss == pytest.approx(cut[0].loss, rel=1e-6)
    assert whole[0].routed.tolist() == cut[0].routed.tolist()
    for name, grad in whole[1].items():
        assert_close(cut[1][name], grad, rtol=1e-4, atol=1e-7)
