"""Hub, sync server and trainers begin anew: nothing moves, and nothing is counted twice."""

from builders.training_world import A, B, C, three_members


def test_hub_restart_moves_nothing_while_it_recovers(play):
    async def scenario(world):
        await three_members(world)
        await world.advance(12)
        world.sync.disconnect(C, silent_for=11)
        await world.restart_hub()
        await world.advance(4)
        assert (await world.ownership()).epoch == 1
        assert (await world.condition("Degraded")).reason == "ReassignmentHeld"
        assert "HubRecovering" in await world.reasons()
        await world.advance(3)
        assert (await world.ownership()).epoch == 2

    play(scenario)


def test_hub_restart_alone_changes_nothing(play):
    async def scenario(world):
        await three_members(world)
        await world.advance(12)
        before = await world.ownership()
        await world.restart_hub()
        await world.advance(20)
        assert await world.ownership() == before
        assert world.clusters["uni-a"].created == [world.trainer_job(A).name]

    play(scenario)


def test_nothing_moves_while_the_sync_server_is_away(play):
    async def scenario(world):
        await three_members(world)
        await world.advance(12)
        world.sync.cut()
        world.stop_agent("uni-c")
        await world.advance(60)
        assert (await world.ownership()).epoch == 1
        assert (await world.condition("Ready")).reason == "SyncServerUnreachable"

    play(scenario)


def test_used_token_is_replaced_for_the_next_process(play):
    async def scenario(world):
        await three_members(world)
        used = world.sync.state.used_token_ids
        tokens = {token.peer: token.id for token in world.sync.plan.tokens}
        assert set(tokens) == {A, B, C}
        assert not used & set(tokens.values())
        world.run_trainer(C)
        await world.settle()
        again = {token.peer: token.id for token in world.sync.plan.tokens}
        assert again[C] != tokens[C]
        assert (again[A], again[B]) == (tokens[A], tokens[B])

    play(scenario)


def test_lost_volume_starts_a_new_incarnation(play):
    async def scenario(world):
        await three_members(world)
        for _ in range(3):
            world.sync.commit()
        await world.advance(12)
        assert (await world.job()).status.round == 3
        world.sync.lose_volume()
        await world.settle()
        assert (await world.ownership()).incarnation == 2
        assert world.sync.plan.incarnation == 2
        assert "VolumeLost" in await world.reasons()
        for peer, version in ((A, 2), (B, 3), (C, 3)):
            world.sync.connect(peer, version=version)
        await world.settle()
        assert world.sync.plan.seed_peer == B
        world.sync.seed()
        world.sync.catch_up(A, B, C)
        await world.advance(12)
        ownership = await world.ownership()
        assert (ownership.epoch, ownership.incarnation) == (1, 2)
        assert (await world.job()).status.round == 0

    play(scenario)


def test_lost_ownership_continues_above_the_servers_epoch(play):
    async def scenario(world):
        await three_members(world)
        world.sync._set(pending_epoch=7)
        await world.settle()
        ownership = await world.ownership()
        assert ownership.epoch == 8
        assert set(ownership.granted.values()) == {8}
        assert world.sync.plan.epoch == 8

    play(scenario)


def test_steady_state_asks_the_api_for_no_write(play):
    async def scenario(world):
        await three_members(world)
        await world.advance(20)
        world.forbid_writes()
        for name in world.agents:
            await world.agents[name].reconcile()
        await world.hub.reconcile_members()
        await world.hub.remove_leftovers()
        await world.hub.reconcile(world.key)

    play(scenario)
