"""A peer that was slow gets experts when it is fast; else speeds that change move nothing."""

import pytest
from spes_operator.hub.ownership import Cause

A, B, C = "uni-a.0", "uni-b.0", "uni-c.0"
SETTLED_ROUNDS = 3


async def placed_by_speed(world, rates, **spec):
    await world.create_job(**spec)
    for name in ("uni-a", "uni-b", "uni-c"):
        await world.add_member(name, 8)
    await world.start_training(A, B, C, rates=rates)


async def train(world, rounds, rates):
    for peer, rate in rates.items():
        world.sync._peer(peer, tokens_per_second=rate)
    for _ in range(rounds):
        world.sync.commit()
        await world.settle()


def test_a_peer_that_was_taken_for_frozen_gets_experts_once_it_is_fast_again(play):
    async def scenario(world):
        await placed_by_speed(world, {A: 200, B: 200, C: 1})
        assert await world.counts() == {A: 4, B: 4, C: 0}
        await train(world, SETTLED_ROUNDS - 1, {C: 200})
        assert (await world.ownership()).epoch == 1
        await train(world, 1, {})
        assert await world.counts() == {A: 3, B: 3, C: 2}
        ownership = await world.ownership()
        assert ownership.epoch == 2
        assert {move.cause for move in ownership.moves if move.epoch == 2} == {Cause.BALANCE}
        assert "uni-c.0 became fast enough" in ownership.moves[-1].reason

    play(scenario)


@pytest.mark.parametrize("rates", [{A: 230, B: 180, C: 200}, {A: 200, B: 1, C: 200}])
def test_speeds_that_wander_move_nothing(play, rates):
    async def scenario(world):
        await placed_by_speed(world, {A: 200, B: 200, C: 200})
        before = await world.counts()
        await train(world, 4 * SETTLED_ROUNDS, rates)
        assert await world.counts() == before
        assert (await world.ownership()).epoch == 1

    play(scenario)


def test_nothing_moves_while_a_speed_is_unknown(play):
    async def scenario(world):
        await placed_by_speed(world, {A: 200, B: 200, C: 1})
        await train(world, 4 * SETTLED_ROUNDS, {A: 0, C: 200})
        assert (await world.ownership()).epoch == 1

    play(scenario)


def test_in_manual_mode_speeds_move_nothing(play):
    async def scenario(world):
        await placed_by_speed(world, {A: 200, B: 200, C: 1}, reassignment={"mode": "Manual"})
        await train(world, 4 * SETTLED_ROUNDS, {C: 200})
        assert await world.counts() == {A: 4, B: 4, C: 0}

    play(scenario)
