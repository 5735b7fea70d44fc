"""What an agent cannot read or write costs that alone: no trainer stops for want of it."""

import asyncio
import contextlib
from pathlib import PurePath

import pytest
from builders.clock import FakeClock
from builders.fake_cluster import FakeCluster
from spes_operator.errors import ForbiddenError, InvalidError, NotFoundError, UnauthorizedError
from spes_operator.k8s.memory import MemoryApi
from spes_operator.k8s.workloads import WorkloadPaths
from spes_operator.member.controller import MemberController, MemberSettings
from spes_operator.member.view import Inventory, Slot

NAMESPACE = "spes-member-uni-a"


def applied_of(item):
    return next(one for one in item["status"]["conditions"] if one["type"] == "Applied")


class Scene:
    """An agent with two slots."""

    def __init__(self):
        self.hub = MemoryApi()
        self.cluster = FakeCluster()
        slots = tuple(Slot(name=name, memory_bytes=1) for name in "01")

        async def inventory():
            return Inventory(cluster_id="c1", version="1", slots=slots)

        self._settings = MemberSettings(
            inventory=inventory,
            paths=lambda _: WorkloadPaths(
                work=PurePath("w"), secrets=PurePath("s"), data=PurePath("d")
            ),
            clock=FakeClock(),
        )
        self.restart()

    def restart(self):
        self.agent = MemberController("uni-a", self.hub, self.cluster, self._settings)

    async def assign(self, slot="0", *, name="", **spec):
        name = name or f"moe-tiny-{slot}"
        metadata = {"namespace": NAMESPACE, "name": name}
        given = {
            "jobUID": "uid-1",
            "slot": slot,
            "desired": "Run",
            "template": {},
            "templateHash": "h1",
            "joinSecret": f"{name}-join",
            "sync": {"endpoint": "hub:1", "caBundle": "PEM"},
        }
        kind = {"apiVersion": "spes.dev/v1alpha1", "kind": "TrainerAssignment"}
        await self.hub.apply("hub", kind | {"metadata": metadata, "spec": given | spec})
        await self.hub.apply(
            "hub",
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "namespace": NAMESPACE,
                    "name": f"{name}-join",
                    "annotations": {"spes.dev/token-id": "t1"},
                },
                "data": {"token": "dDEuc2VjcmV0"},
            },
        )

    def refuse(self, call, error, *, kind, name=None):
        """From now on `call` of the hub's API refuses that kind (of that name)."""
        real = getattr(self.hub, call)

        async def refusing(*arguments, **options):
            if arguments[0] == kind and (name is None or arguments[2] == name):
                raise error
            return await real(*arguments, **options)

        setattr(self.hub, call, refusing)


def test_a_field_that_only_a_newer_hub_knows_changes_nothing():
    """A hub is upgraded before its members."""

    async def scenario():
        scene = Scene()
        await scene.assign()
        await scene.agent.reconcile()
        (running,) = scene.cluster.created
        await scene.assign(priority="High")
        await scene.agent.reconcile()
        assert list(scene.cluster.records) == [running]
        await scene.assign("1", priority="High")
        await scene.agent.reconcile()
        assert len(scene.cluster.records) == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("is_new_agent", [False, True])
def test_an_assignment_that_cannot_be_read_stops_nothing(is_new_agent):
    async def scenario():
        scene = Scene()
        await scene.assign()
        await scene.agent.reconcile()
        await scene.assign(desired="Hibernate")
        if is_new_agent:
            scene.restart()
        await scene.agent.reconcile()
        assert len(scene.cluster.records) == 1
        assert "moe-tiny-0-join" in scene.cluster.secret_data
        await scene.hub.delete("TrainerAssignment", NAMESPACE, "moe-tiny-0")
        await scene.agent.reconcile()
        assert not scene.cluster.records

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [NotFoundError, InvalidError, ForbiddenError, UnauthorizedError])
def test_whatever_the_hub_answers_the_own_cluster_is_looked_after(error):
    """A trainer whose Job a person deleted comes back, though the hub has lost its definitions."""

    async def scenario():
        scene = Scene()
        await scene.assign()
        await scene.agent.reconcile()
        scene.cluster.records.clear()
        for kind in ("TrainerAssignment", "Secret"):
            scene.refuse("list", error("no"), kind=kind)
        with contextlib.suppress(error):  # told or not
            await scene.agent.reconcile()
        assert len(scene.cluster.records) == 1

    asyncio.run(scenario())


def test_a_status_that_is_refused_keeps_back_no_other_and_no_report():
    async def scenario():
        scene = Scene()
        await scene.assign("0")
        await scene.assign("1")
        scene.refuse(
            "patch_status", InvalidError("no"), kind="TrainerAssignment", name="moe-tiny-0"
        )
        with pytest.raises(InvalidError):
            await scene.agent.reconcile()
        other = await scene.hub.get("TrainerAssignment", NAMESPACE, "moe-tiny-1")
        assert other["status"]["conditions"]
        assert (await scene.hub.get("MemberReport", NAMESPACE, "report"))["status"]["slots"]

    asyncio.run(scenario())


def test_a_local_secret_that_a_person_stripped_is_no_token():
    async def scenario():
        scene = Scene()
        await scene.assign()
        await scene.agent.reconcile()
        scene.cluster.annotations["moe-tiny-0-join"] = {}
        scene.refuse("list", ForbiddenError("no"), kind="Secret")
        await scene.agent.reconcile()
        assert len(scene.cluster.records) == 1

    asyncio.run(scenario())


def test_of_two_jobs_that_want_a_slot_the_second_says_whom_it_waits_for():
    async def scenario():
        scene = Scene()
        await scene.assign(name="first")
        await scene.agent.reconcile()
        await scene.assign(name="earlier-in-the-alphabet", jobUID="uid-2")
        await scene.agent.reconcile()
        (job,) = scene.cluster.records.values()
        assert job.assignment == "first"
        waits = await scene.hub.get("TrainerAssignment", NAMESPACE, "earlier-in-the-alphabet")
        applied = applied_of(waits)
        assert (applied["status"], applied["reason"]) == ("False", "Queued")
        assert applied["message"] == "slot 0 runs the trainer of assignment first"
        await scene.hub.delete("TrainerAssignment", NAMESPACE, "first")
        await scene.agent.reconcile()
        await scene.agent.reconcile()
        (job,) = scene.cluster.records.values()
        assert job.assignment == "earlier-in-the-alphabet"

    asyncio.run(scenario())
