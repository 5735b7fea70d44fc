"""How many stories of a hub begin: a job in training over a few members."""

A, B, C, D = "uni-a.0", "uni-b.0", "uni-c.0", "uni-d.0"


async def two_members(world, **spec):
    """Each with room for every expert; A and B train."""
    await world.create_job(**spec)
    for name in ("uni-a", "uni-b"):
        await world.add_member(name, 8)
    await world.start_training(A, B)


async def three_members(world, **spec):
    """With room for 8, 4 and 2 experts, the last one of half their speed; A, B and C train."""
    await world.create_job(**spec)
    for name, capacity in (("uni-a", 8), ("uni-b", 4), ("uni-c", 2)):
        await world.add_member(name, capacity)
    await world.start_training(A, B, C, rates={A: 200, B: 200, C: 100})
