"""An object that does not follow its schema is told where people look, and stops nobody else."""

from builders.hub_world import KEY
from builders.training_world import A, B, two_members
from spes_operator.names import member_namespace


async def spoil_assignment(world, peer):
    """As by the CRDs of another release; answers how it was."""
    mine = (await world.assignments())[peer].metadata
    before = await world.api.get("TrainerAssignment", mine.namespace, mine.name)
    await world.api.replace("other", before | {"spec": before["spec"] | {"desired": "Dance"}})
    return before


def test_an_unreadable_assignment_is_a_condition_and_is_left_alone(play):
    async def scenario(world):
        await two_members(world)
        before = await spoil_assignment(world, A)
        await world.settle()
        degraded = await world.condition("Degraded")
        assert degraded.reason == "ObjectUnreadable"
        assert before["metadata"]["name"] in degraded.message
        assert "spec.desired" in degraded.message
        assert (await world.ownership()).peers == (A, B)
        key = before["metadata"]["namespace"], before["metadata"]["name"]
        found = await world.api.get("TrainerAssignment", *key)
        assert found["spec"]["desired"] == "Dance"
        await world.api.replace("other", found | {"spec": before["spec"]})
        await world.settle()
        assert (await world.condition("Degraded")).status == "False"

    play(scenario)


def test_an_unreadable_assignment_of_one_holds_no_other_up(play):
    async def scenario(world):
        await two_members(world)
        await spoil_assignment(world, A)
        await world.change_member("uni-b", accepted=False)
        await world.settle()
        assert (await world.ownership()).peers == (A,)
        assert {peer: one.spec.desired for peer, one in (await world.assignments()).items()} == {
            B: "Drain"
        }

    play(scenario)


def test_an_unreadable_assignment_keeps_its_token_also_where_nobody_is_wanted(play):
    async def scenario(world):
        await two_members(world)
        before = (await spoil_assignment(world, A))["metadata"]
        await world.change_job(suspend=True)
        await world.settle()
        secrets = [obj["metadata"] for obj in (await world.api.list("Secret")).items]
        kept = f"{before['name']}-join"
        assert kept in [one["name"] for one in secrets if one["namespace"] == before["namespace"]]

    play(scenario)


def test_an_unreadable_report_is_told_of_its_member(play):
    async def scenario(world):
        await two_members(world)
        world.stop_agent("uni-b")  # or it would write it anew
        namespace = member_namespace("uni-b")
        report = await world.api.get("MemberReport", namespace, "report")
        slots = [{"name": "0", "memoryBytes": "much"}]
        status = report["status"] | {"slots": slots}
        await world.api.patch_status("MemberReport", namespace, "report", status)
        await world.hub.reconcile_members()
        await world.hub.reconcile(KEY)
        told = {one.type: one for one in (await world.member("uni-b")).status.conditions}
        for kind in ("Joined", "Ready"):
            assert (told[kind].status, told[kind].reason) == ("False", "ReportUnreadable")
            assert "memoryBytes" in told[kind].message
        assert (await world.ownership()).peers == (A, B)  # its Session is live

    play(scenario)
