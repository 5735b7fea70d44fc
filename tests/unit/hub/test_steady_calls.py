"""What the hub asks of its API while nothing changes: no write, and reads as many as members."""

from collections import Counter

WRITES = ("create", "apply", "replace", "patch_status", "delete")


async def calls_at_rest(world, num_members):
    """The calls of one pass over everything, by method, with a job on every member."""
    names = [f"uni-{index}" for index in range(num_members)]
    await world.create_job(members={"min": 1, "max": num_members})
    for name in names:
        await world.add_member(name, 8)
    await world.start_training(*(f"{name}.0" for name in names))
    await world.advance(20, every=2)
    calls = Counter()
    for name in ("get", "list", *WRITES):
        setattr(world.api, name, counted(calls, name, getattr(world.api, name)))
    await world.hub.reconcile_members()
    await world.hub.remove_leftovers()
    await world.hub.reconcile(world.key)
    return calls


def counted(calls, name, method):
    async def call(*arguments, **options):
        calls[name] += 1
        return await method(*arguments, **options)

    return call


def test_calls_at_rest_grow_with_the_members_alone(play):
    seen = {}

    def look(num_members):
        async def scenario(world):
            seen[num_members] = await calls_at_rest(world, num_members)

        play(scenario)

    for num_members in (2, 4, 8):
        look(num_members)
    assert not any(calls[name] for calls in seen.values() for name in WRITES)
    total = {number: sum(calls.values()) for number, calls in seen.items()}
    each = (total[4] - total[2]) / 2
    assert (total[8] - total[4]) / 4 == each
    assert each <= 2  # its Secrets: for the job, and for what deleted jobs left
    assert total[2] - 2 * each <= 20
