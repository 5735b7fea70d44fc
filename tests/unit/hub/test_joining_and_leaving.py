"""Members come, are drained, are taken away, and are not accepted any more."""

from builders.training_world import A, B, C, D, three_members


def test_preempted_member_gives_its_experts_away_at_once(play):
    async def scenario(world):
        await three_members(world)
        world.sync.commit()
        await world.settle()
        world.offer("uni-c")
        world.sync.leave(C, "Interrupted")
        await world.settle()
        assert await world.counts() == {A: 4, B: 4}
        moves = (await world.ownership()).moves_after(1)
        assert len(moves) == moves[0].lower_bound == 2
        assert {move.reason for move in moves} == {"uni-c no longer offers slot 0"}
        assert {"MemberLeft", "ExpertsMoved"} <= set(await world.reasons())
        assert set(await world.assignments()) == {A, B}
        assert world.clusters["uni-c"].records == {}

    play(scenario)


def test_joining_member_is_placed_once_it_is_caught_up(play):
    async def scenario(world):
        await world.create_job()
        await world.add_member("uni-a", 8)
        await world.add_member("uni-b", 4)
        await world.start_training(A, B)
        world.sync.commit()
        await world.add_member("uni-d", 4)
        await world.beat()
        await world.settle()
        assert await world.counts() == {A: 4, B: 4}
        world.run_trainer(D)
        await world.settle()
        assert await world.counts() == {A: 4, B: 4}
        assert (await world.assignments())[D].spec.experts == ""
        world.sync.catch_up(D)
        await world.settle()
        assert await world.counts() == {A: 3, B: 3, D: 2}
        ownership = await world.ownership()
        assert (ownership.epoch, len(ownership.moves_after(1))) == (2, 2)
        assert set(ownership.granted.values()) == {1, 2}
        assert await world.messages("MemberJoined") == [f"{D} takes part from epoch 2 on"]
        (moved,) = await world.messages("ExpertsMoved")
        assert moved.startswith("epoch 2: 2 experts moved (at least 2 had to): ")
        assert moved.endswith("uni-d.0 joined")

    play(scenario)


def test_member_drained_from_one_job_leaves_it_and_stays_ready(play):
    async def scenario(world):
        await three_members(world)
        await world.change_job(annotations={"spes.dev/drain": "uni-b,uni-x"})
        await world.settle()
        assert [order.peers for order in world.sync.drained] == [(B,)]
        world.sync.leave(B)
        await world.settle()
        assert B not in await world.counts()
        assert B not in await world.assignments()
        conditions = {one.type: one for one in (await world.member("uni-b")).status.conditions}
        assert (conditions["Ready"].status, conditions["Cordoned"].status) == ("True", "False")

    play(scenario)


def test_member_no_longer_accepted_loses_its_experts_whatever_its_trainer_does(play):
    async def scenario(world):
        await three_members(world)
        await world.change_member("uni-b", accepted=False)
        await world.settle()
        assert await world.counts() == {A: 6, C: 2}
        assert [order.peers for order in world.sync.drained] == [(B,)]  # and is asked to stop
        assert (await world.ownership()).epoch == 2

    play(scenario)


def test_drained_member_pushes_leaves_and_is_stopped(play):
    async def scenario(world):
        await three_members(world)
        await world.change_member("uni-b", unschedulable=True)
        await world.settle()
        assert [order.peers for order in world.sync.drained] == [(B,)]
        assert (await world.assignments())[B].spec.desired == "Drain"
        assert await world.counts() == {A: 3, B: 3, C: 2}
        assert world.clusters["uni-b"].records
        world.sync.leave(B)
        await world.settle()
        assert B not in await world.counts()
        assert B not in await world.assignments()
        assert world.clusters["uni-b"].records == {}
        conditions = {one.type: one for one in (await world.member("uni-b")).status.conditions}
        assert conditions["Drained"].status == "True"
        assert len(world.sync.drained) == 1

    play(scenario)


def test_later_shortage_parks_experts_in_turn(play):
    async def scenario(world):
        await world.create_job(members={"min": 1})
        await world.add_member("uni-b", 4)
        await world.add_member("uni-d", 4)
        await world.start_training(B, D)
        world.offer("uni-d")
        world.sync.leave(D)
        await world.settle()
        first = await world.ownership()
        assert len(first.parked) == 4
        assert (await world.job()).status.experts.parked == 4
        await world.settle()
        assert (await world.ownership()).parked == first.parked
        world.sync.commit()
        await world.settle()
        assert set((await world.ownership()).parked) != set(first.parked)

    play(scenario)


def test_moves_for_balance_are_limited_and_orphans_are_not(play):
    async def scenario(world):
        await world.create_job(reassignment={"maxMovesPerMinute": 1}, members={"max": 8})
        await world.add_member("uni-a", 8)
        await world.add_member("uni-b", 4)
        await world.start_training(A, B)
        for name in ("uni-c", "uni-d"):
            await world.add_member(name, 4)
            await world.beat()
            await world.settle()
            world.run_trainer(f"{name}.0")
            await world.settle()
            world.sync.catch_up(f"{name}.0")
            await world.settle()
        assert set(await world.counts()) == {A, B, C}
        world.offer("uni-c")
        world.sync.leave(C)
        await world.settle()
        assert set(await world.counts()) == {A, B}
        await world.advance(61)
        assert set(await world.counts()) == {A, B, D}

    play(scenario)


def test_other_cluster_under_a_members_name_is_not_used(play):
    async def scenario(world):
        await three_members(world)
        world.offer("uni-c", 2, cluster_id="stranger")
        await world.settle()
        ready = next(
            o for o in (await world.member("uni-c")).status.conditions if o.type == "Ready"
        )
        assert ready.reason == "ClusterIDDiffers"
        assert (await world.assignments())[C].spec.desired == "Drain"

    play(scenario)


def test_the_same_cluster_under_another_name_is_not_used(play):
    async def scenario(world):
        await three_members(world)
        before = await world.counts()
        await world.add_member("uni-d", 8, cluster_id="uid-uni-a")
        await world.beat()
        await world.settle()
        ready = {
            name: next(o for o in (await world.member(name)).status.conditions if o.type == "Ready")
            for name in ("uni-a", "uni-d")
        }
        assert (ready["uni-a"].status, ready["uni-d"].reason) == ("True", "ClusterTaken")
        assert "member uni-a already" in ready["uni-d"].message
        assert (await world.member("uni-d")).status.cluster_id == ""
        assert D not in await world.assignments()
        assert await world.counts() == before

    play(scenario)
