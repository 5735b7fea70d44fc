"""A job is complete or deleted: its trainers push, and nothing of it stays."""

from builders.training_world import A, B, C, three_members


def test_complete_job_stops_its_trainers(play):
    async def scenario(world):
        await three_members(world)
        world.sync.commit()
        world.sync.finish()
        for peer in (A, B, C):
            world.sync.leave(peer, "Complete")
        await world.settle()
        assert all(not cluster.records for cluster in world.clusters.values())
        assert (await world.condition("Complete")).status == "True"
        assert (await world.condition("Ready")).status == "True"

    play(scenario)


def test_deleted_job_goes_at_once_and_its_peers_after_their_push(play):
    async def scenario(world):
        await three_members(world)
        await world.api.delete("SpesJob", "research", "moe-tiny")
        await world.settle()
        (order,) = world.sync.drained
        assert (order.stop, order.peers) == (True, ())
        assert set(await world.assignments()) == {A, B, C}
        for peer in (A, B, C):
            world.sync.leave(peer, "Stopped")
        await world.settle()
        assert await world.assignments() == {}
        assert all(not cluster.records for cluster in world.clusters.values())
        for kind in ("Secret", "ConfigMap", "SyncServer"):
            assert (await world.api.list(kind)).items == []
        assert "JobDeleted" in await world.reasons()

    play(scenario)


def test_deleted_job_does_not_wait_for_peers_for_ever(play):
    async def scenario(world):
        await three_members(world)
        await world.api.delete("SpesJob", "research", "moe-tiny")
        await world.advance(119, every=30)
        assert await world.assignments()
        await world.advance(31, every=30)
        assert await world.assignments() == {}

    play(scenario)


def test_member_that_was_away_cleans_up_on_its_return(play):
    async def scenario(world):
        await three_members(world)
        world.stop_agent("uni-c")
        await world.api.delete("SpesJob", "research", "moe-tiny")
        for peer in (A, B, C):
            world.sync.leave(peer, "Stopped")
        await world.settle()
        assert world.clusters["uni-c"].records
        world.start_agent("uni-c")
        await world.settle()
        assert world.clusters["uni-c"].records == {}
        assert world.clusters["uni-c"].secret_data == {}

    play(scenario)
