"""Members and trainers that are not heard: who is waited for, and for how long."""

from builders.training_world import A, B, C, three_members


def test_silent_member_is_reassigned_once_and_returns_as_candidate(play):
    async def scenario(world):
        await three_members(world)
        await world.advance(6)
        world.stop_agent("uni-c")
        world.sync.disconnect(C)
        await world.advance(8)
        assert (await world.ownership()).epoch == 1
        assert (await world.condition("Degraded")).reason == "MemberUnreachable"
        await world.advance(6)
        assert await world.counts() == {A: 4, B: 4}
        assert (await world.ownership()).epoch == 2
        await world.advance(20)
        assert (await world.ownership()).epoch == 2

        world.start_agent("uni-c")
        await world.beat()
        world.sync.connect(C)
        world.sync.catch_up(C)
        await world.settle()
        assert C not in await world.counts()  # heard for a moment only
        await world.advance(4)
        assert await world.counts() == {A: 3, B: 3, C: 2}
        assert "MemberReturned" in await world.reasons()

    play(scenario)


def test_member_back_in_time_keeps_its_experts(play):
    async def scenario(world):
        await three_members(world)
        await world.advance(6)
        world.stop_agent("uni-c")
        world.sync.disconnect(C)
        await world.advance(8)
        world.start_agent("uni-c")
        world.sync.connect(C)
        world.sync.catch_up(C)
        await world.advance(30)
        assert (await world.ownership()).epoch == 1

    play(scenario)


def test_silent_agent_with_a_live_session_loses_nothing(play):
    async def scenario(world):
        await three_members(world)
        world.stop_agent("uni-c")
        await world.advance(60)
        assert (await world.ownership()).epoch == 1

    play(scenario)


def test_crashed_trainer_is_replaced_locally_first(play):
    async def scenario(world):
        await three_members(world)
        await world.advance(12)
        world.sync.disconnect(C)
        await world.advance(6)
        assert (await world.condition("Degraded")).reason == "PodPreempted"
        world.sync.connect(C)
        world.sync.catch_up(C)
        await world.advance(20)
        assert (await world.ownership()).epoch == 1

    play(scenario)


def test_trainer_without_session_loses_its_slot_in_the_end(play):
    async def scenario(world):
        await three_members(world)
        await world.advance(12)
        world.sync.disconnect(C)
        await world.advance(12)
        assert await world.counts() == {A: 4, B: 4}

    play(scenario)


def test_mass_loss_is_held_until_its_end(play):
    async def scenario(world):
        await three_members(world)
        await world.advance(6)
        for name, peer in (("uni-b", B), ("uni-c", C)):
            world.stop_agent(name)
            world.sync.disconnect(peer)
        await world.advance(15)
        assert (await world.ownership()).epoch == 1
        held = await world.condition("Degraded")
        assert held.reason == "ReassignmentHeld"
        assert "2 of 3 members vanished together" in held.message
        await world.advance(20)
        assert await world.counts() == {A: 8}

    play(scenario)


def test_mass_loss_hold_ends_when_one_returns(play):
    async def scenario(world):
        await three_members(world)
        await world.advance(6)
        for name, peer in (("uni-b", B), ("uni-c", C)):
            world.stop_agent(name)
            world.sync.disconnect(peer)
        await world.advance(15)
        world.start_agent("uni-b")
        world.sync.connect(B)
        world.sync.catch_up(B)
        await world.advance(3)
        assert await world.counts() == {A: 4, B: 4}

    play(scenario)


def test_manual_mode_moves_at_a_persons_word_only(play):
    async def scenario(world):
        await three_members(world, reassignment={"mode": "Manual"})
        await world.advance(6)
        world.stop_agent("uni-c")
        world.sync.disconnect(C)
        await world.advance(60)
        assert (await world.ownership()).epoch == 1
        assert (await world.condition("Degraded")).reason == "ReassignmentHeld"
        await world.reassign_now()
        await world.settle()
        assert await world.counts() == {A: 4, B: 4}
        world.sync.disconnect(B)
        await world.advance(60)
        assert (await world.ownership()).epoch == 2

    play(scenario)
