"""What a hub leaves half done when it dies, and what the next one makes of it."""

from builders.hub_world import KEY
from builders.training_world import A, B, two_members
from spes_operator.names import join_secret_name, member_namespace


def test_a_token_whose_assignment_is_gone_goes_too(play):
    """As if a hub had died between the two."""

    async def scenario(world):
        await two_members(world)
        mine = (await world.assignments())[A].metadata
        secret = await world.api.get("Secret", mine.namespace, join_secret_name(mine.name))
        await world.change_member("uni-a", unschedulable=True)
        await world.settle()
        world.sync.leave(A)
        await world.settle()
        left = {"kind": "Secret", "metadata": dict(secret["metadata"]), "data": secret["data"]}
        del left["metadata"]["resourceVersion"], left["metadata"]["uid"]
        await world.api.create("hub", left | {"apiVersion": "v1"})
        await world.settle()
        await world.step()
        assert set(await world.assignments()) == {B}
        assert (await world.api.list("Secret", member_namespace("uni-a"))).items == []

    play(scenario)


def test_a_hub_that_has_just_started_calls_no_server_away(play):
    """It has not asked it yet."""

    async def scenario(world):
        await two_members(world)
        before = await world.condition("Ready")
        await world.restart_hub()
        await world.hub.reconcile(KEY)  # before the server had the time to answer
        assert await world.condition("Ready") == before
        await world.settle()
        assert "SyncServerUnreachable" not in await world.reasons()
        assert (await world.condition("Ready")).reason == "Training"

    play(scenario)
