"""What a person must mend becomes a condition of the job, and goes when it is mended."""

import pytest
from builders.hub_world import KEY
from spes_operator.errors import ForbiddenError, RefusedError
from spes_operator.member.view import MemberLimits
from spes_operator.names import ObjectKey

A, B = "uni-a.0", "uni-b.0"
TEXT = "this volume belongs to job other; give each job a volume of its own"


async def training(world, limits=None):
    await world.create_job()
    for name in ("uni-a", "uni-b"):
        await world.add_member(name, 8, limits=limits)
    await world.start_training(A, B)


async def failing_passes(world, kind, count=2):
    for _ in range(count):
        with pytest.raises(kind):
            await world.hub.reconcile(KEY)


def test_a_plan_refused_for_good_is_a_condition(play):
    async def scenario(world):
        await training(world)
        accepts = world.sync.apply_plan

        async def refuse(_plan):
            raise RefusedError(TEXT)

        world.sync.apply_plan = refuse
        await world.restart_hub()
        for _ in range(3):
            await world.step()
        degraded, ready = await world.condition("Degraded"), await world.condition("Ready")
        assert (degraded.status, degraded.reason) == ("True", "PlanRefused")
        assert (ready.status, ready.message) == ("False", TEXT)
        world.sync.apply_plan = accepts
        await world.settle()
        assert (await world.condition("Degraded")).status == "False"

    play(scenario)


def test_a_refusal_of_one_moment_is_not_told(play):
    async def scenario(world):
        await training(world)
        api = world.api
        get = api.get

        async def forbid(kind, *arguments):
            if kind == "ConfigMap":
                raise ForbiddenError("configmaps is forbidden")
            return await get(kind, *arguments)

        api.get = forbid
        await failing_passes(world, ForbiddenError, count=1)
        assert (await world.condition("Degraded")).status == "False"
        await failing_passes(world, ForbiddenError, count=1)
        assert (await world.condition("Degraded")).reason == "HubForbidden"
        api.get = get
        await world.settle()
        assert (await world.condition("Degraded")).status == "False"

    play(scenario)


def test_a_member_without_rights_for_the_hub_holds_nobody_up(play):
    async def scenario(world):
        await world.create_job()
        for name in ("uni-a", "uni-b", "uni-c"):
            await world.add_member(name, 8)
        lists = world.api.list

        async def forbid(kind, namespace="", *arguments):
            if (kind, namespace) == ("Secret", "spes-member-uni-c"):
                raise ForbiddenError("secrets is forbidden")
            return await lists(kind, namespace, *arguments)

        world.api.list = forbid
        await world.start_training(A, B)
        assert set(await world.assignments()) == {A, B}
        assert (await world.condition("Ready")).status == "True"

    play(scenario)


def test_what_is_told_is_written_once(play):
    async def scenario(world):
        await training(world)
        ownership = await world.api.get("ConfigMap", KEY.namespace, f"{KEY.name}-ownership")
        await world.api.replace("user", ownership | {"data": {"ownership.json": "{"}})
        await failing_passes(world, Exception)
        told = await world.job()
        await failing_passes(world, Exception, count=3)
        assert await world.job() == told
        assert (await world.condition("Degraded")).reason == "OwnershipDamaged"

    play(scenario)


def test_a_job_created_anew_has_a_memory_of_its_own(play):
    async def scenario(world):
        await training(world)
        before = (await world.job()).metadata.uid
        await world.api.delete("SpesJob", *KEY)
        await world.create_job()
        await world.step()
        after = (await world.job()).metadata.uid
        assert after != before
        assert (await world.job()).status.ownership_epoch == 0

    play(scenario)


def test_images_are_fixed_when_a_job_is_first_seen(play):
    async def scenario(world):
        world.images = ("trainer:1", "sync:1")
        await world.restart_hub()
        await training(world, MemberLimits(images=frozenset({"trainer:1"})))
        before = {item.spec.template_hash for item in (await world.assignments()).values()}
        world.images = ("trainer:2", "sync:2")
        await world.restart_hub()
        await world.settle()
        assert (await world.job()).status.images.trainer == "trainer:1"
        after = {item.spec.template_hash for item in (await world.assignments()).values()}
        assert before == after

    play(scenario)


def test_a_job_elsewhere_is_told_where_jobs_are_carried_out(play):
    async def scenario(world):
        world.job_namespaces = ("other",)
        await world.restart_hub()
        await world.create_job()
        await world.step()
        validated = await world.condition("Validated")
        assert validated.status == "False"
        assert "expected one of other" in validated.message
        assert world.hub.sync_state(ObjectKey("other", KEY.name)) is None

    play(scenario)
