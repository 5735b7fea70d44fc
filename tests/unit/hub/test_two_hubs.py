"""Two hubs by accident, for example while one is replaced: the outcome is that of one."""

from builders.hub_world import KEY, breathe, quietly

A, B, C = "uni-a.0", "uni-b.0", "uni-c.0"


async def both(world, other, passes=12):
    """Let both work, in turns."""
    for _ in range(passes):
        await world.step()
        await quietly(other.reconcile_members())
        await quietly(other.reconcile(KEY))
        await quietly(other.remove_leftovers())
        await breathe()


def test_of_two_hubs_neither_undoes_what_the_other_did(play):
    async def scenario(world):
        await world.create_job()
        for name in ("uni-a", "uni-b", "uni-c"):
            await world.add_member(name, 8)
        other = world._new_hub()
        try:
            await both(world, other)
            await world.start_training(A, B, C)
            await both(world, other)
            first = await world.ownership()
            world.clock.advance(6)  # the second one's cooldown is over too
            await world.beat()
            await both(world, other)
            assert await world.ownership() == first
            await world.change_member("uni-c", accepted=False)
            await both(world, other)
            second = await world.ownership()
            assert (second.epoch, second.peers) == (first.epoch + 1, (A, B))
            await settled(world, other)
        finally:
            await other.close()

    play(scenario)


def test_two_hubs_end_a_job_as_one_does(play):
    async def scenario(world):
        await world.create_job()
        for name in ("uni-a", "uni-b"):
            await world.add_member(name, 8)
        other = world._new_hub()
        try:
            await world.start_training(A, B)
            await both(world, other)
            world.sync.finish()
            await both(world, other)
            await settled(world, other)
            await world.api.delete("SpesJob", *KEY)
            for peer in (A, B):
                world.sync.leave(peer)
            await both(world, other)
            assert not await world.assignments()
        finally:
            await other.close()

    play(scenario)


async def settled(world, other):
    """Neither writes any more."""
    plans = len(world.sync.plans)
    writes = []
    for name in ("create", "apply", "replace", "patch_status", "delete"):
        setattr(world.api, name, noting(writes, getattr(world.api, name)))
    await both(world, other, passes=3)
    assert writes == []
    assert len(world.sync.plans) == plans
    for name in ("create", "apply", "replace", "patch_status", "delete"):
        delattr(world.api, name)


def noting(writes, call):
    async def noted(*arguments, **options):
        writes.append((call.__name__, arguments))
        return await call(*arguments, **options)

    return noted
