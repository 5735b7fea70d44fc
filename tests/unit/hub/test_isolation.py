"""What is broken in one place stops nothing elsewhere, and is told where a person looks."""

import asyncio
import math

import pytest
from builders.hub_world import KEY, breathe
from spes_operator.errors import ForbiddenError, InvalidError
from spes_operator.hub.sync_control import from_wire
from spes_operator.isolation import Isolation
from spes_operator.names import member_namespace
from spes_proto.v1 import control_pb2

A, B, C = "uni-a.0", "uni-b.0", "uni-c.0"


async def training(world, *names):
    await world.create_job()
    for name in names:
        await world.add_member(name, 8)
    await world.start_training(*(f"{name}.0" for name in names))


def refuse(world, call, error, *, kind, namespace=None):
    """From now on `call` of the API refuses objects of that kind (there)."""
    real = getattr(world.api, call)

    async def refusing(*arguments, **options):
        if call in ("create", "apply", "replace"):
            obj = arguments[1]
            place = obj["kind"], obj["metadata"].get("namespace", "")
        else:
            place = (*arguments, "")[:2]
        if place[0] == kind and namespace in (None, place[1]):
            raise error
        return await real(*arguments, **options)

    setattr(world.api, call, refusing)
    return lambda: setattr(world.api, call, real)


def test_a_member_namespace_that_takes_nothing_holds_no_ownership_up(play):
    """Its namespace ends, for example: what the job does elsewhere goes on."""

    async def scenario(world):
        await training(world, "uni-a", "uni-b")
        await world.add_member("uni-c", 8)
        gone = ForbiddenError("namespace is being terminated")
        refuse(world, "apply", gone, kind="Secret", namespace=member_namespace("uni-c"))
        await world.change_member("uni-b", accepted=False)
        for _ in range(6):
            await world.step()
        assert (await world.ownership()).peers == (A,)
        assert world.sync.plan.peers == (A,)
        degraded = await world.condition("Degraded")
        assert (degraded.reason, degraded.message) == ("WriteRefused", str(gone))

    play(scenario)


def test_a_member_namespace_that_is_shut_holds_its_own_share_back_alone(play):
    """The hub may not look into it any more: what runs there goes on, and so does the rest."""

    async def scenario(world):
        await training(world, "uni-a", "uni-b")
        await world.add_member("uni-c", 8)
        shut = ForbiddenError("secrets is forbidden")
        undo = [
            refuse(world, call, shut, kind=kind, namespace=member_namespace("uni-b"))
            for call, kind in (("list", "Secret"), ("apply", "TrainerAssignment"))
        ]
        await world.step()
        assert (await world.condition("Degraded")).status == "False"  # it may be of a moment
        await world.step()
        degraded = await world.condition("Degraded")
        assert degraded.reason == "HubForbidden"
        assert "uni-b" in degraded.message
        await world.settle()
        assert (await world.ownership()).peers == (A, B)
        world.run_trainer(C)
        world.sync.catch_up(C)
        await world.change_member("uni-a", unschedulable=True)
        await world.settle()
        world.sync.leave(A)
        await world.settle()
        assert (await world.ownership()).peers == (B, C)
        assert set(await world.assignments()) == {B, C}
        before = (await world.assignments())[B]
        for take_back in reversed(undo):
            take_back()
        await world.settle()
        assert (await world.condition("Degraded")).status == "False"
        assert (await world.assignments())[B].spec != before.spec

    play(scenario)


def test_what_a_shut_member_does_not_do_any_more_is_lost_as_elsewhere(play):
    async def scenario(world):
        await training(world, "uni-a", "uni-b")
        await world.add_member("uni-c", 8)
        await world.settle()
        shut = ForbiddenError("secrets is forbidden")
        refuse(world, "list", shut, kind="Secret", namespace=member_namespace("uni-b"))
        world.sync.disconnect(B)
        await world.advance(12)
        assert (await world.ownership()).peers == (A,)

    play(scenario)


def test_an_assignment_that_is_refused_holds_no_other_up(play):
    async def scenario(world):
        await training(world, "uni-a", "uni-b")
        bad = InvalidError("denied by a policy")
        refuse(world, "apply", bad, kind="TrainerAssignment", namespace=member_namespace("uni-a"))
        await world.change_job(suspend=True)
        for _ in range(3):
            await world.step()
        assignments = await world.assignments()
        assert assignments[A].spec.desired == "Run"
        assert assignments[B].spec.desired == "Drain"

    play(scenario)


def test_a_field_that_a_person_holds_is_told_and_stops_nobody_else(play):
    """Server-side apply refuses it each time: silence would hide that for ever."""

    async def scenario(world):
        await training(world, "uni-a", "uni-b")
        mine = (await world.assignments())[A]
        current = await world.api.get(
            "TrainerAssignment", mine.metadata.namespace, mine.metadata.name
        )
        spec = current["spec"] | {"experts": "7"}
        await world.api.replace("kubectl-edit", current | {"spec": spec})
        await world.change_job(suspend=True)
        for _ in range(20):
            await world.step()
        assert (await world.assignments())[B].spec.desired != "Run"
        degraded = await world.condition("Degraded")
        assert (degraded.status, degraded.reason) == ("True", "WriteRefused")
        assert "kubectl-edit" in degraded.message

    play(scenario)


def test_a_member_whose_namespace_is_shut_keeps_no_other_from_its_status(play):
    async def scenario(world):
        for name in ("uni-a", "uni-b"):
            await world.add_member(name, 8)
        shut = InvalidError("unknown field")
        real = world.api.patch_status

        async def refusing(kind, namespace, name, status, **options):
            if (kind, name) == ("MemberCluster", "uni-a"):
                raise shut
            return await real(kind, namespace, name, status, **options)

        world.api.patch_status = refusing
        await world.beat()
        for name in ("uni-a", "uni-b"):
            await world.agents[name].reconcile()
        with pytest.raises(InvalidError):
            await world.hub.reconcile_members()
        assert (await world.member("uni-b")).status.conditions
        assert {seen.name for seen in world.hub.measures.members} == {"uni-a", "uni-b"}

    play(scenario)


def test_a_namespace_that_ends_takes_no_last_push_away(play):
    """It refuses new objects, Events too; its jobs' peers are still asked to push."""

    async def scenario(world):
        await training(world, "uni-a", "uni-b")
        refuse(world, "create", ForbiddenError("being terminated"), kind="Event")
        await world.api.delete("SpesJob", *KEY)
        for _ in range(2):
            await world.step()
        assert [order.stop for order in world.sync.drained] == [True]

    play(scenario)


def test_leftovers_that_cannot_be_removed_keep_no_others(play):
    async def scenario(world):
        await training(world, "uni-a", "uni-b")
        stays = {
            "apiVersion": "spes.dev/v1alpha1",
            "kind": "TrainerAssignment",
            "metadata": {
                "namespace": "spes-member-a",
                "name": "left",
                "labels": {"spes.dev/job-uid": "0-first"},
            },
            "spec": {},
        }
        await world.api.create("hub", stays)
        refuse(
            world,
            "delete",
            ForbiddenError("no right"),
            kind="TrainerAssignment",
            namespace="spes-member-a",
        )
        await world.api.delete("SpesJob", *KEY)
        world.sync.leave(A)
        world.sync.leave(B)
        await breathe()
        with pytest.raises(ForbiddenError):
            await world.hub.remove_leftovers()
        assert not await world.assignments()

    play(scenario)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_a_peer_says_that_is_no_number_is_taken_for_nothing(number):
    """It would end each pass over its job, or reach a status that no API server takes."""
    peer = control_pb2.PeerState(peer=A, connected=True, tokens_per_second=number, loss=number)
    seen = from_wire(control_pb2.SyncState(held_out_loss=number, peers=[peer]))
    assert seen.held_out_loss is None
    assert (seen.peers[A].tokens_per_second, seen.peers[A].loss) == (0.0, 0.0)


def test_a_state_that_cannot_be_understood_is_not_believed_for_ever(play):
    async def scenario(world):
        await training(world, "uni-a", "uni-b")
        watch = world.sync.watch

        async def garbled():
            raise OverflowError("a number that is no time")
            yield

        world.sync.watch = garbled
        world.sync.commit()  # the present watch ends with the next state
        world.sync.cut()
        for _ in range(3):
            await breathe()
        assert world.hub.sync_state(KEY) is None
        world.sync.watch = watch
        world.sync.restore()
        await until(lambda: world.hub.sync_state(KEY) is not None)

    play(scenario)


async def until(holds):
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("amount", ["abc", "-3", "1e999999", "9e99"])
def test_a_report_that_makes_no_sense_keeps_no_other_member_from_its_status(play, amount):
    """A member that is not even accepted may report what it likes."""

    async def scenario(world):
        for name in ("uni-a", "uni-b"):
            await world.add_member(name, 8)
        await world.change_member("uni-a", accepted=False)
        await world.beat()
        for name in ("uni-a", "uni-b"):
            await world.agents[name].reconcile()
        namespace = member_namespace("uni-a")
        report = await world.api.get("MemberReport", namespace, "report")
        (slot,) = report["status"]["slots"]
        slots = [slot | {"resources": {"nvidia.com/gpu": amount}}]
        status = report["status"] | {"slots": slots}
        await world.api.patch_status("MemberReport", namespace, "report", status)
        await world.hub.reconcile_members()
        assert (await world.member("uni-a")).status.gpus == 0
        assert (await world.member("uni-b")).status.conditions

    play(scenario)


def test_what_nobody_foresaw_about_one_keeps_no_other():
    isolation, done = Isolation(), []
    for name in ("a", "b", "c"):
        with isolation.each():
            if name == "a":
                raise ValueError("no number")
            done.append(name)
    assert done == ["b", "c"]
    with pytest.raises(InvalidError, match="no number"):
        isolation.check()
