"""What a member's cluster or its limits do to a trainer reaches the job with the next pass."""

from spes_operator.errors import ForbiddenError
from spes_operator.member.view import MemberLimits

A, B = "uni-a.0", "uni-b.0"


async def waiting_for_trainers(world, **limits):
    """Two members; the sync server listens."""
    await world.create_job()
    await world.add_member("uni-a", 8)
    await world.add_member("uni-b", 4, limits=MemberLimits(**limits))
    await world.beat()
    await world.settle()
    await world.listen()


async def told(world):
    ready = await world.condition("Ready")
    return ready.reason, ready.message


def test_a_quota_is_told_on_the_job(play):
    async def scenario(world):
        await waiting_for_trainers(world)
        world.clusters["uni-b"].refuse_with = ForbiddenError("exceeded quota: gpus, limited: 0")
        await world.settle()
        assert await told(world) == ("QuotaExceeded", f"{B}: exceeded quota: gpus, limited: 0")
        assert "QuotaExceeded" in await world.reasons()

    play(scenario)


def test_an_image_that_cannot_be_had_is_told_within_one_pass_and_forgotten_too(play):
    async def scenario(world):
        await waiting_for_trainers(world)
        await world.settle()
        job, cluster = world.trainer_job(B).name, world.clusters["uni-b"]
        cluster.set_status(job, reason="ImagePullFailed", message="no such tag")
        await world.step()
        assert await told(world) == ("ImagePullFailed", f"{B}: no such tag")
        cluster.set_status(job, reason="Starting", message="")
        await world.step()
        assert await told(world) == ("WaitingForPods", "2 trainers are starting")

    play(scenario)


def test_a_veto_is_told_on_the_job(play):
    async def scenario(world):
        await waiting_for_trainers(world, max_jobs=0)
        await world.settle()
        assert await told(world) == (
            "VetoedByMember",
            f"{B}: no more than 0 trainers may run here",
        )
        said = await world.reasons()
        assert {"VetoedByMember", "AssignmentRefused"} <= set(said)

    play(scenario)
