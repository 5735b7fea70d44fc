"""Jobs in which every peer trains everything: no owners, no moves, room for all experts or none."""

from datetime import UTC, datetime

from spes_operator.hub.ownership import Ownership
from spes_operator.names import ObjectKey

A, B, C = "uni-a.0", "uni-b.0", "uni-c.0"
FEDAVG = {"algorithm": {"name": "FedAvg"}}


async def two_members(world, **spec):
    await world.create_job(**FEDAVG, **spec)
    for name in ("uni-a", "uni-b"):
        await world.add_member(name, 8)
    await world.start_training(A, B)


def test_every_peer_is_placed_and_owns_nothing(play):
    async def scenario(world):
        await two_members(world)
        ownership = await world.ownership()
        assert (ownership.replicated, ownership.owners, ownership.moves) == (True, {}, ())
        plan = world.sync.plan
        assert (plan.replicated, plan.owners, plan.parked, plan.peers) == (True, {}, (), (A, B))
        assert (await world.condition("Ready")).reason == "Training"

    play(scenario)


def test_status_and_assignments_say_that_all_train_all(play):
    async def scenario(world):
        await two_members(world)
        status = (await world.job()).status
        assert [(row.peer, row.experts) for row in status.ownership] == [(A, "0-7"), (B, "0-7")]
        counts = status.experts
        assert (counts.total, counts.owned, counts.parked) == (8, 8, 0)
        assignments = await world.assignments()
        assert {item.spec.experts for item in assignments.values()} == {"0-7"}
        assert "ExpertsPlaced" in await world.reasons()

    play(scenario)


def test_joining_and_leaving_change_the_peers_alone(play):
    async def scenario(world):
        await two_members(world)
        await world.add_member("uni-c", 8)
        await world.beat()
        await world.settle()
        world.run_trainer(C)
        world.sync.catch_up(C)
        await world.settle()
        joined = await world.ownership()
        assert (joined.epoch, joined.peers, joined.moves) == (2, (A, B, C), ())
        world.sync.disconnect(B)
        world.stop_agent("uni-b")
        await world.advance(25)
        left = await world.ownership()
        assert (left.peers, left.owners, left.moves) == ((A, C), {}, ())

    play(scenario)


def test_steady_state_writes_nothing(play):
    async def scenario(world):
        await two_members(world)
        await world.advance(10)
        plans = len(world.sync.plans)
        world.forbid_writes()
        for _ in range(5):
            await world.step()
        assert len(world.sync.plans) == plans

    play(scenario)


def test_peers_without_room_for_all_experts_are_no_capacity(play):
    async def scenario(world):
        await world.create_job(**FEDAVG)
        await world.add_member("uni-a", 8)
        await world.add_member("uni-b", 4)
        await world.start_training(A)
        ready = await world.condition("Ready")
        assert ready.reason == "NoGPUCapacity"
        assert "every peer trains all 8 experts, but 1 of 2 peers have memory" in ready.message
        assert "uni-b.0 has 0.042 of 0.050 GB" in ready.message
        assert await world.ownership() is None
        assert set(await world.assignments()) == {A}  # the other would run for nothing

    play(scenario)


def test_limit_on_owned_experts_says_nothing_where_nobody_owns(play):
    async def scenario(world):
        await two_members(world, experts={"maxPerPeer": 2})
        assert (await world.ownership()).peers == (A, B)

    play(scenario)


def test_config_map_of_a_former_version_is_not_replicated():
    """Before there were replicated jobs, the document did not say so."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    ownership = Ownership(epoch=1, peers=(A,), replicated=True, changed_at=now)
    stored = ownership.to_config_map(ObjectKey("research", "moe-tiny"), "uid")
    stored["metadata"]["resourceVersion"] = "1"
    assert Ownership.from_config_map(stored).replicated
    text = stored["data"]["ownership.json"].replace('"replicated":true,', "")
    stored["data"]["ownership.json"] = text
    assert not Ownership.from_config_map(stored).replicated
