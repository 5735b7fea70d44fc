"""What the algorithms must equal at one step a round, with the torch model and AdamW."""

from __future__ import annotations

import pytest
import torch
from builders.nano import follow, nano_stepper, nano_tokens
from spes_sync.manifest import SHARED, expert_of

RATE = 0.01
# Two peers; each owns half of the experts.
OWNED = {"uni-a.0": (0, 1), "uni-b.0": (2, 3)}


def spes_of_two(*, rounds: int, clip: float):
    """Two peers that take the same batch; shared parameters averaged, experts their owner's."""
    peers = {name: nano_stepper(owned=(), **optimizer(clip)) for name in OWNED}
    for name, stepper in peers.items():
        follow(stepper, OWNED[name])
    for number in range(rounds):
        for stepper in peers.values():
            stepper.step(nano_tokens(seed=number), rate=RATE)
        synchronise(peers)
    return weights(peers["uni-a.0"])


@torch.no_grad()
def synchronise(peers) -> None:
    held = {name: weights(stepper) for name, stepper in peers.items()}
    for stepper in peers.values():
        for name, parameter in stepper.model.named_parameters():
            expert = expert_of(name)
            owners = [peer for peer, owned in OWNED.items() if expert in (SHARED, *owned)]
            parameter.copy_(sum(held[peer][name] for peer in owners) / len(owners))


def centralised(*, rounds: int, clip: float):
    stepper = nano_stepper(**optimizer(clip))
    for number in range(rounds):
        stepper.step(nano_tokens(seed=number), rate=RATE)
    return weights(stepper)


def optimizer(clip: float):
    return {"optimizer": {"learningRate": RATE, "clipNorm": clip}}


def weights(stepper) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in stepper.model.named_parameters()}


def differing(clip: float) -> list[str]:
    spes, central = spes_of_two(rounds=4, clip=clip), centralised(rounds=4, clip=clip)
    return [name for name in central if not torch.equal(spes[name], central[name])]


def test_spes_on_one_batch_is_centralised_bit_for_bit_without_clipping():
    assert differing(clip=1e9) == []


def test_clipping_tells_them_apart():
    """Each peer's norm is over what it trains, so the two clip differently."""
    assert differing(clip=0.01)


@pytest.mark.parametrize("experts", [(0, 1, 2, 3), (0, 1)], ids=["all", "half"])
def test_a_step_trains_what_is_owned_and_nothing_else(experts):
    stepper = nano_stepper(owned=experts)
    before = weights(stepper)
    stepper.step(nano_tokens(), rate=RATE)
    after = weights(stepper)
    moved = {expert_of(name) for name in before if not torch.equal(before[name], after[name])}
    assert moved == {SHARED, *experts}
