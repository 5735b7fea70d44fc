"""A job's trainers are replaced one at a time when their pods are described in another way."""

from spes_api.status import Images
from spes_operator.member.view import MemberLimits
from spes_operator.names import member_of

A, B, C, D = "uni-a.0", "uni-b.0", "uni-c.0", "uni-d.0"
OLD, NEW, BROKEN = "trainer:1", "trainer:2", "trainer:broken"
ANY_IMAGE = MemberLimits(images=frozenset({OLD, NEW, BROKEN, "", "trainer:3"}))


async def three_members(world, **spec):
    await world.create_job(trainer={"image": OLD, "gracePeriodSeconds": 10}, **spec)
    for name, capacity in (("uni-a", 8), ("uni-b", 4), ("uni-c", 2)):
        await world.add_member(name, capacity, limits=ANY_IMAGE)
    await world.start_training(A, B, C, rates={A: 200, B: 200, C: 100})


async def change_image(world, image):
    await world.change_job(trainer={"image": image})
    await world.settle()


async def leaves_and_comes_back(world, peer):
    world.sync.leave(peer)
    world.clusters[member_of(peer)].set_status(world.trainer_job(peer).name, ready=False)
    await world.settle()
    world.join_again(peer)
    await world.settle()


def images(world):
    return {
        peer: world.trainer_job(peer).pod.image
        for peer in (A, B, C)
        if world.clusters[member_of(peer)].records
    }


async def leaving(world):
    assignments = await world.assignments()
    return {peer for peer, item in assignments.items() if item.spec.desired != "Run"}


def asked(world):
    return [order.peers for order in world.sync.drained]


def test_new_image_reaches_one_trainer_after_the_other(play):
    async def scenario(world):
        await three_members(world)
        await change_image(world, NEW)
        assert (asked(world), await leaving(world)) == ([(A,)], {A})
        assert world.sync.drained[0].reason == "its trainer is replaced"
        world.sync.leave(A)
        await world.settle()
        assert images(world) == {A: NEW, B: OLD, C: OLD}
        world.run_trainer(A)  # it is there, but has not caught up
        await world.settle()
        assert (asked(world), await leaving(world)) == ([(A,)], set())
        world.sync.catch_up(A)
        await world.settle()
        assert (asked(world), await leaving(world)) == ([(A,), (B,)], {B})
        for peer in (B, C):
            await leaves_and_comes_back(world, peer)
        assert images(world) == {A: NEW, B: NEW, C: NEW}
        assert asked(world) == [(A,), (B,), (C,)]
        assert (await world.ownership()).epoch == 1
        assert {len(cluster.created) for cluster in world.clusters.values()} == {2}

    play(scenario)


def test_replacement_is_told_while_it_lasts(play):
    async def scenario(world):
        await three_members(world)
        await change_image(world, NEW)
        progressing = await world.condition("Progressing")
        assert (progressing.status, progressing.reason) == ("True", "ReplacingTrainers")
        assert progressing.message.startswith("0 of 3 trainers run the job's present template")
        await leaves_and_comes_back(world, A)
        assert (await world.condition("Progressing")).message.startswith("1 of 3")
        await leaves_and_comes_back(world, B)
        world.sync.leave(C)
        await world.settle()
        progressing = await world.condition("Progressing")
        assert progressing.message == (
            "2 of 3 trainers run the job's present template; waiting for uni-c.0"
        )
        world.join_again(C)
        await world.settle()
        assert (await world.condition("Progressing")).reason == "Training"
        reasons = await world.reasons()
        assert (reasons.count("ReplacingTrainers"), reasons.count("TrainersReplaced")) == (1, 1)
        assert (await world.job()).status.observed_generation == 2
        generations = {one.observed_generation for one in (await world.job()).status.conditions}
        assert generations == {2}

    play(scenario)


def test_new_image_that_does_not_come_up_takes_one_trainer_at_most(play):
    async def scenario(world):
        await three_members(world)
        await change_image(world, BROKEN)
        world.sync.leave(A)
        await world.settle()
        world.clusters["uni-a"].set_status(
            world.trainer_job(A).name, reason="ImagePullFailed", message="no such image"
        )
        world.sync.silence(A, 60)
        await world.advance(60, every=5)
        assert asked(world) == [(A,)]
        assert set(await world.counts()) == {B, C}
        world.sync.commit()
        await world.settle()
        assert (await world.condition("Degraded")).reason == "ImagePullFailed"
        await change_image(world, NEW)  # mended: A, which has nothing to lose, is first
        assert images(world)[A] == NEW
        world.join_again(A)
        await world.settle()
        assert asked(world) == [(A,), (B,)]

    play(scenario)


def test_trainers_that_do_not_run_are_replaced_at_once(play):
    async def scenario(world):
        await world.create_job(trainer={"image": BROKEN})
        for name in ("uni-a", "uni-b", "uni-c"):
            await world.add_member(name, 8, limits=ANY_IMAGE)
        await world.beat()
        await world.settle()
        await world.listen()
        await world.settle()
        assert images(world) == {A: BROKEN, B: BROKEN, C: BROKEN}
        await change_image(world, NEW)
        assert images(world) == {A: NEW, B: NEW, C: NEW}
        assert asked(world) == []

    play(scenario)


def test_trainer_that_failed_for_good_is_tried_again_with_a_new_image(play):
    async def scenario(world):
        await three_members(world)
        world.clusters["uni-c"].set_status(
            world.trainer_job(C).name, active=False, ready=False, exit_code=2, reason="Failed"
        )
        world.sync.disconnect(C)
        await world.settle()
        assert set(await world.counts()) == {A, B}
        await change_image(world, NEW)
        assert images(world)[C] == NEW
        assert (await world.assignments())[C].spec.desired == "Run"

    play(scenario)


def test_image_that_a_member_vetoes_stops_no_other_trainer(play):
    async def scenario(world):
        await three_members(world)
        await change_image(world, "registry.example.org/other")
        world.sync.leave(A)
        await world.advance(30, every=5)
        world.sync.commit()
        await world.settle()
        assert asked(world) == [(A,)]
        assert (await world.condition("Degraded")).reason == "VetoedByMember"
        await change_image(world, OLD)
        assert images(world) == {A: OLD, B: OLD, C: OLD}

    play(scenario)


def test_nothing_is_replaced_while_a_peer_is_missing(play):
    async def scenario(world):
        await three_members(world)
        await world.advance(6)
        world.sync.disconnect(B)
        await world.advance(2)
        await change_image(world, NEW)
        assert A not in await leaving(world)
        assert C not in await leaving(world)

    play(scenario)


def test_job_of_the_least_number_of_peers_is_replaced_all_the_same(play):
    """It cannot keep its quorum; two at a time would be worse."""

    async def scenario(world):
        await three_members(world, members={"min": 3})
        await change_image(world, NEW)
        for peer in (A, B, C):
            assert await leaving(world) == {peer}
            await leaves_and_comes_back(world, peer)
        assert images(world) == {A: NEW, B: NEW, C: NEW}

    play(scenario)


def test_replacement_waits_for_no_server_that_is_away(play):
    async def scenario(world):
        await three_members(world)
        world.sync.cut()
        await change_image(world, NEW)
        await world.advance(30, every=5)
        assert images(world) == {A: OLD, B: OLD, C: OLD}

    play(scenario)


def test_second_edit_during_a_replacement_goes_on_from_there(play):
    async def scenario(world):
        await three_members(world)
        await change_image(world, NEW)
        await leaves_and_comes_back(world, A)
        await change_image(world, "trainer:3")
        await leaves_and_comes_back(world, B)
        for peer in (A, C):
            assert await leaving(world) == {peer}
            await leaves_and_comes_back(world, peer)
        assert set(images(world).values()) == {"trainer:3"}

    play(scenario)


def test_new_chart_default_changes_no_running_job(play):
    async def scenario(world):
        world.images = (OLD, "")
        await world.restart_hub()
        await world.create_job()
        for name in ("uni-a", "uni-b", "uni-c"):
            await world.add_member(name, 8, limits=ANY_IMAGE)
        await world.start_training(A, B, C)
        world.images = (NEW, "")
        await world.restart_hub()
        await world.advance(30, every=5)
        assert images(world) == {A: OLD, B: OLD, C: OLD}
        assert asked(world) == []
        assert (await world.job()).status.images == Images(trainer=OLD)

    play(scenario)


def test_fewer_members_leave_at_the_next_opening_and_more_come(play):
    async def scenario(world):
        await three_members(world)
        world.sync.commit()
        await world.change_job(members={"min": 1, "max": 2})
        await world.settle()
        assert asked(world) == [(C,)]
        assert await world.counts() == {A: 3, B: 3, C: 2}  # until its last push is in
        world.sync.leave(C)
        await world.settle()
        assert await world.counts() == {A: 4, B: 4}
        ownership = await world.ownership()
        assert {move.reason for move in ownership.moves_after(1)} == {"members.max is 2"}
        assert world.sync.state.active_epoch == 1  # the open round keeps its plan
        assert C not in await world.assignments()
        await world.change_job(members={"min": 1, "max": 4})
        await world.settle()
        world.join_again(C)
        await world.settle()
        assert await world.counts() == {A: 3, B: 3, C: 2}

    play(scenario)
