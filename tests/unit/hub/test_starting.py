"""From the first assignment to the first placement, and what of it people read."""

from builders.training_world import A, B, C, three_members
from spes_operator.hub.sync_state import Phase


def test_start_places_experts_when_candidates_are_caught_up(play):
    async def scenario(world):
        await three_members(world)
        assert await world.counts() == {A: 3, B: 3, C: 2}
        ownership = await world.ownership()
        assert ownership.epoch == 1
        assert sorted(ownership.owners) == list(range(8))
        assert world.sync.plan.epoch == 1
        assert world.sync.plan.seed_peer == A
        assert set(world.sync.plan.peers) == {A, B, C}
        assert (await world.condition("Ready")).reason == "Training"
        assert await world.reasons() == [
            "WaitingForPods",
            "Seeding",
            "WaitingForPods",
            "ExpertsPlaced",
            "Training",
        ]

    play(scenario)


def test_the_loss_is_written_as_people_read_it(play):
    async def scenario(world):
        await three_members(world)
        world.sync._set(held_out_loss=0.21270952397777187)
        await world.advance(15)
        assert (await world.job()).status.loss == 0.2127

    play(scenario)


def test_the_parts_that_peers_have_done_are_written_and_outlive_the_servers_absence(play):
    async def scenario(world):
        await three_members(world)
        world.sync._peer(A, contribution=0.96123)
        world.sync._peer(B, contribution=0.03877)
        await world.advance(15)
        world.sync.cut()
        await world.advance(15)
        rows = {row.peer: row.contribution for row in (await world.job()).status.ownership}
        assert (rows[A], rows[B]) == (0.961, 0.039)

    play(scenario)


def test_assignments_have_no_experts_before_they_are_placed(play):
    async def scenario(world):
        await world.create_job()
        await world.add_member("uni-a", 8)
        await world.add_member("uni-b", 4)
        await world.beat()
        await world.settle()
        assert await world.assignments() == {}  # the server does not listen yet
        await world.listen()
        await world.settle()
        assignments = await world.assignments()
        assert set(assignments) == {A, B}
        assert {item.spec.experts for item in assignments.values()} == {""}
        assert world.sync.plan.epoch == 0
        assert {token.peer for token in world.sync.plan.tokens} == {A, B}

    play(scenario)


def test_start_waits_for_stragglers_but_not_for_ever(play):
    async def scenario(world):
        await world.create_job()
        for name, capacity in (("uni-a", 8), ("uni-b", 4), ("uni-c", 2)):
            await world.add_member(name, capacity)
        await world.start_training(A, B)
        await world.advance(9)
        assert await world.ownership() is None
        await world.advance(2)
        assert await world.counts() == {A: 4, B: 4}

    play(scenario)


def test_too_little_memory_is_said_with_the_numbers(play):
    async def scenario(world):
        await world.create_job()
        await world.add_member("uni-c", 2)
        await world.add_member("uni-b", 4)
        await world.start_training("uni-b.0", "uni-c.0")
        assert await world.ownership() is None
        ready = await world.condition("Ready")
        assert ready.reason == "NoGPUCapacity"
        assert "8 experts need an owner, but the peers have memory for 6" in ready.message

    play(scenario)


def test_members_that_do_not_match_get_no_assignment(play):
    async def scenario(world):
        await world.create_job(members={"selector": {"tier": "gold"}, "min": 1})
        await world.add_member("uni-a", 8)
        await world.add_member("uni-b", 4)
        await world.change_member("uni-a", labels={"tier": "gold"})
        await world.beat()
        await world.settle()
        await world.listen()
        await world.settle()
        assert set(await world.assignments()) == {A}

    play(scenario)


def test_held_round_is_shown_with_the_servers_words(play):
    async def scenario(world):
        await three_members(world)
        world.sync._set(phase=Phase.HELD, problem="waiting for uni-b.0")
        await world.settle()
        ready = await world.condition("Ready")
        assert (ready.status, ready.reason) == ("False", "RoundHeld")
        assert ready.message == "waiting for uni-b.0"

    play(scenario)


def test_job_that_is_no_job_says_what_is_wrong(play):
    async def scenario(world):
        await world.create_job(members={"min": 3, "max": 2})
        await world.settle()
        job = await world.api.get("SpesJob", "research", "moe-tiny")
        conditions = {one["type"]: one for one in job["status"]["conditions"]}
        assert conditions["Validated"]["reason"] == conditions["Ready"]["reason"] == "InvalidSpec"
        assert "min must be at most max" in conditions["Validated"]["message"]
        before = job["metadata"]["resourceVersion"]
        await world.hub.reconcile(world.key)
        job = await world.api.get("SpesJob", "research", "moe-tiny")
        assert job["metadata"]["resourceVersion"] == before

    play(scenario)
