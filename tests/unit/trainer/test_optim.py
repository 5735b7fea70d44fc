"""AdamW, clipping, and what happens to moments when experts move."""

from __future__ import annotations

import pytest
import torch
from builders.nano import follow, nano_stepper, nano_tokens
from spes_api.job import OptimizerSpec
from spes_sync.manifest import expert_of
from spes_trainer.optim import (
    RAMP_STEPS,
    CohortAdamW,
    moments_from_tensors,
    moments_to_tensors,
)
from torch import nn

RATE = 5e-4


def optimizer_of(parameters, **changes) -> CohortAdamW:
    optimizer = CohortAdamW(OptimizerSpec(learning_rate=RATE, **changes))
    optimizer.follow(parameters, ramp=False)
    return optimizer


def test_first_step_of_adamw():
    weight = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = optimizer_of({"w": weight})
    weight.grad = torch.tensor([0.5], dtype=torch.float64)
    optimizer.step(RATE)
    assert weight.item() == pytest.approx(0.99945000001, abs=1e-15)


def test_steps_follow_the_formulas_of_adamw():
    weight = nn.Parameter(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64))
    optimizer = optimizer_of({"w": weight}, betas=[0.8, 0.9], weight_decay=0.1)
    expected = weight.detach().clone()
    first, second = torch.zeros_like(expected), torch.zeros_like(expected)
    generator = torch.Generator().manual_seed(0)
    for step in range(1, 11):
        gradient = torch.randn(3, dtype=torch.float64, generator=generator)
        first = 0.8 * first + 0.2 * gradient
        second = 0.9 * second + 0.1 * gradient**2
        direction = first / (1 - 0.8**step) / ((second / (1 - 0.9**step)).sqrt() + 1e-8)
        expected = expected * (1 - RATE * 0.1) - RATE * direction
        weight.grad = gradient
        optimizer.step(RATE)
    assert weight.detach().tolist() == pytest.approx(expected.tolist(), abs=1e-14)


def test_gradients_are_scaled_to_the_norm_of_all_of_them():
    first, second = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    first.grad, second.grad = torch.tensor([3.0]), torch.tensor([4.0])
    norm = optimizer_of({"a": first, "b": second}, clip_norm=1.0).clip_norm()
    assert norm.item() == 5.0
    assert first.grad.item() == pytest.approx(3 / (5 + 1e-6))


def test_small_gradients_are_not_scaled():
    weight = nn.Parameter(torch.zeros(1))
    weight.grad = torch.tensor([0.25])
    optimizer_of({"w": weight}).clip_norm()
    assert weight.grad.item() == 0.25


def test_the_proximal_term_pulls_towards_the_anchor_before_clipping():
    weight, free = nn.Parameter(torch.tensor([1.0])), nn.Parameter(torch.tensor([9.0]))
    optimizer = optimizer_of({"w": weight}, proximal=0.2, clip_norm=1000.0)
    optimizer.anchor({"w": weight})
    optimizer.follow({"w": weight, "free": free}, ramp=False)  # gained since: nothing holds it
    with torch.no_grad():
        weight += 5
    weight.grad, free.grad = torch.tensor([0.5]), torch.tensor([0.25])
    assert optimizer.clip_norm().item() == pytest.approx((1.5**2 + 0.25**2) ** 0.5)
    assert (weight.grad.item(), free.grad.item()) == pytest.approx((0.5 + 0.2 * 5, 0.25))


def test_without_an_anchor_or_a_coefficient_nothing_pulls():
    weight = nn.Parameter(torch.tensor([1.0]))
    for proximal, anchored in ((0.2, False), (0.0, True)):
        optimizer = optimizer_of({"w": weight}, proximal=proximal)
        if anchored:
            optimizer.anchor({"w": weight})
        weight.grad = torch.tensor([0.5])
        optimizer.clip_norm()
        assert weight.grad.item() == 0.5


def test_frozen_experts_keep_bytes_and_have_no_state():
    stepper = nano_stepper(owned=(1, 3))
    frozen = {
        name: p.detach().clone()
        for name, p in stepper.model.named_parameters()
        if expert_of(name) in (0, 2)
    }
    for seed in range(3):
        stepper.step(nano_tokens(seed=seed), rate=0.01)
    parameters = dict(stepper.model.named_parameters())
    assert all(torch.equal(parameters[name], before) for name, before in frozen.items())
    assert all(parameters[name].grad is None for name in frozen)
    assert {expert_of(name) for name in stepper.optimizer.moments} == {-1, 1, 3}


def test_every_trained_tensor_moves():
    stepper = nano_stepper(owned=(1,))
    before = {n: p.detach().clone() for n, p in stepper.model.named_parameters()}
    stepper.step(nano_tokens(), rate=0.01)
    moved = {
        n for n, p in stepper.model.named_parameters() if not torch.equal(p.detach(), before[n])
    }
    assert moved == {n for n in before if expert_of(n) in (-1, 1)}


def test_lost_experts_lose_their_state_and_kept_ones_keep_it():
    stepper = nano_stepper(owned=(0, 1))
    stepper.step(nano_tokens(), rate=0.01)
    before = {name: held.exp_avg.clone() for name, held in stepper.optimizer.moments.items()}
    follow(stepper, (1, 2), ramp=True)
    after = stepper.optimizer.moments
    assert {expert_of(name) for name in after} == {-1, 1, 2}
    kept = {name: held for name, held in after.items() if expert_of(name) != 2}
    assert all(torch.equal(held.exp_avg, before[name]) for name, held in kept.items())
    assert {(held.num_steps, held.ramp) for held in kept.values()} == {(1, RAMP_STEPS)}
    gained = [held for name, held in after.items() if expert_of(name) == 2]
    assert {(held.num_steps, held.ramp) for held in gained} == {(0, 0)}
    assert not any(held.exp_avg.any() or held.exp_avg_sq.any() for held in gained)


def test_a_gained_expert_has_its_own_bias_correction():
    stepper = nano_stepper(owned=(0,))
    for seed in range(3):
        stepper.step(nano_tokens(seed=seed), rate=0.01)
    follow(stepper, (0, 1), ramp=True)
    stepper.step(nano_tokens(seed=3), rate=0.01)
    steps = {expert_of(name): held.num_steps for name, held in stepper.optimizer.moments.items()}
    assert steps == {-1: 4, 0: 4, 1: 1}


def test_a_cohort_climbs_to_the_full_rate():
    """Step n moves it by rate * (n + 1) / 100: Adam's own step is 1 for a constant gradient."""
    old, new = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    optimizer = optimizer_of({"old": old}, weight_decay=0.0, epsilon=1e-30)
    optimizer.follow({"old": old, "new": new}, ramp=True)
    moved = []
    for _ in range(RAMP_STEPS + 2):
        before = new.item()
        old.grad, new.grad = torch.ones(1), torch.ones(1)
        optimizer.step(RATE)
        moved.append((before - new.item()) / RATE)
    assert moved[0] == pytest.approx(0.01, rel=1e-3)
    assert moved[49] == pytest.approx(0.50, rel=1e-3)
    assert moved[RAMP_STEPS:] == pytest.approx([1.0, 1.0], rel=1e-3)
    assert old.item() == pytest.approx(-RATE * (RAMP_STEPS + 2), rel=1e-4)


def test_decay_climbs_with_the_rate():
    weight = nn.Parameter(torch.ones(1))
    optimizer = CohortAdamW(OptimizerSpec(learning_rate=RATE, weight_decay=0.1))
    optimizer.follow({"w": weight}, ramp=True)
    weight.grad = torch.zeros(1)
    optimizer.step(0.5)
    assert weight.item() == pytest.approx(1 - 0.5 * 0.01 * 0.1, abs=1e-7)


def test_two_cohorts_climb_apart():
    stepper = nano_stepper(owned=(0,))
    follow(stepper, (0, 1), ramp=True)
    stepper.step(nano_tokens(), rate=0.01)
    follow(stepper, (0, 1, 2), ramp=True)
    stepper.step(nano_tokens(), rate=0.01)
    ramps = {expert_of(name): held.ramp for name, held in stepper.optimizer.moments.items()}
    assert ramps == {-1: RAMP_STEPS, 0: RAMP_STEPS, 1: 2, 2: 1}


def test_moments_that_came_along_need_no_ramp():
    giver, taker = nano_stepper(owned=(0,)), nano_stepper(owned=(1,))
    giver.step(nano_tokens(), rate=0.01)
    brought = {n: m for n, m in giver.optimizer.moments.items() if expert_of(n) == 0}
    follow(taker, (0, 1), ramp=True, moments=brought)
    held = taker.optimizer.moments["layers.0.experts.0.w1"]
    assert (held.num_steps, held.ramp) == (1, RAMP_STEPS)
    assert torch.equal(held.exp_avg, brought["layers.0.experts.0.w1"].exp_avg)


def test_stored_moments_come_back_whole():
    stepper = nano_stepper(owned=(0,))
    stepper.step(nano_tokens(), rate=0.01)
    follow(stepper, (0, 1), ramp=True)
    stepper.step(nano_tokens(), rate=0.01)
    held = stepper.optimizer.moments
    back = moments_from_tensors(dict(moments_to_tensors(held)))
    assert held.keys() == back.keys()
    for name, moments in held.items():
        assert torch.equal(back[name].exp_avg_sq, moments.exp_avg_sq)
        assert (back[name].num_steps, back[name].ramp) == (moments.num_steps, moments.ramp)


@pytest.mark.parametrize("steps_before", [0, 3])
def test_follow_of_the_same_set_changes_nothing(steps_before):
    plain, followed = nano_stepper(owned=(0, 2)), nano_stepper(owned=(0, 2))
    for seed in range(steps_before + 2):
        if seed == steps_before:
            follow(followed, (0, 2))
        for stepper in (plain, followed):
            stepper.step(nano_tokens(seed=seed), rate=0.01)
    for mine, theirs in zip(plain.model.parameters(), followed.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_handed_over_moments_are_as_far_on_the_ramp_as_they_have_steps():
    stepper = nano_stepper(owned=(0,))
    stepper.step(nano_tokens(), rate=0.01)
    tensors = dict(moments_to_tensors(stepper.optimizer.moments))
    sent = {name: tensor for name, tensor in tensors.items() if not name.startswith("ramp.")}
    assert {held.ramp for held in moments_from_tensors(sent).values()} == {1}
