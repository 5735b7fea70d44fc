"""Jobs and members come and go for years: nothing of those that are gone stays or is redone."""

import asyncio
from datetime import timedelta

from builders.hub_world import KEY
from builders.training_world import two_members
from spes_operator.hub.heartbeats import Heartbeats


def test_a_complete_job_mints_nothing_for_a_member_that_is_not_accepted_any_more(play):
    """Its Secrets are not looked at: each pass would find none, and make one."""

    async def scenario(world):
        await two_members(world)
        world.sync.finish()
        await world.change_member("uni-b", accepted=False)
        await world.settle()
        world.forbid_writes()
        await world.hub.reconcile(KEY)

    play(scenario)


def test_a_complete_job_mints_nothing_for_a_member_that_is_removed(play):
    async def scenario(world):
        await two_members(world)
        world.sync.finish()
        await world.api.delete("MemberCluster", "", "uni-b")
        await world.settle()
        world.forbid_writes()
        await world.hub.reconcile(KEY)

    play(scenario)


def test_a_members_silence_is_forgotten_with_it(play):
    """One that is invited again under its name has not been silent since last year."""

    async def scenario(world):
        await world.add_member("uni-a", 8)
        await world.beat()
        await world.step()
        world.stop_agent("uni-a")
        await world.api.delete("MemberCluster", "", "uni-a")
        await world.hub.reconcile_members()
        assert not world.hub._members._roster.heartbeats._heard

    play(scenario)


def test_forgetting_leaves_the_others():
    heartbeats = Heartbeats(0.0)
    for name in ("uni-a", "uni-b"):
        heartbeats.observe(name, "1", now=5.0, interval=timedelta(seconds=1))
    heartbeats.keep_only({"uni-b"})
    assert heartbeats.silent_for("uni-a", now=9.0) == timedelta(seconds=9)
    assert heartbeats.silent_for("uni-b", now=9.0) == timedelta(seconds=4)


def test_what_a_status_was_read_for_is_what_it_is_written_to(play):
    """A job may be deleted and made anew within a pass; the new one has done nothing yet."""

    async def scenario(world):
        await two_members(world)
        world.sync.commit()
        real = world.api.patch_status
        replaced = []

        async def slowly(kind, namespace, name, *arguments, **options):
            if kind == "SpesJob" and not replaced:
                replaced.append(await world.api.delete("SpesJob", *KEY))
                await world.create_job()
            return await real(kind, namespace, name, *arguments, **options)

        world.api.patch_status = slowly
        await world.change_job(suspend=True)
        await world.step()
        world.api.patch_status = real
        assert replaced
        assert (await world.job()).status.round == 0

    play(scenario)


def test_a_deleted_job_is_forgotten_though_no_event_tells_of_the_end_of_its_server(play):
    """The resync looks at what is remembered, not only at what is there."""

    async def scenario(world):
        await two_members(world)
        host = world.hub._settings.host
        await world.api.delete("SpesJob", *KEY)
        host.exists = still_there
        await world.hub.reconcile(KEY)
        assert world.hub.measures.jobs
        host.exists = not_there
        world.hub._queue._due.clear()  # no mark is left of what happened before
        working = asyncio.create_task(world.hub.run(Silent()))
        async with asyncio.timeout(20):
            while world.hub.measures.jobs:
                await asyncio.sleep(0.01)
        working.cancel()

    play(scenario)


async def still_there(_job, _uid):
    return True


async def not_there(_job, _uid):
    return False


class Silent:
    """A feed that brings nothing."""

    async def run(self, _handlers, _namespace):
        await asyncio.Event().wait()


def test_nothing_of_ours_waits_for_us_before_it_goes(play):
    """No finalizer: what a hub or an agent made can be removed when both are long gone."""

    async def scenario(world):
        await two_members(world)
        objects = [one["object"] for one in world.api.snapshot()["objects"]]
        kinds = {obj["kind"] for obj in objects}
        assert {"SpesJob", "MemberCluster", "TrainerAssignment", "Secret", "ConfigMap"} <= kinds
        assert not [obj for obj in objects if "finalizers" in obj["metadata"]]

    play(scenario)
