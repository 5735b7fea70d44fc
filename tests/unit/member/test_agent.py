"""The agent over the in-memory API."""

import asyncio
import base64
from pathlib import PurePath

import pytest
from builders.clock import FakeClock
from builders.fake_cluster import FakeCluster
from spes_operator.errors import ForbiddenError, UnavailableError
from spes_operator.k8s.memory import MemoryApi
from spes_operator.k8s.workloads import WorkloadPaths
from spes_operator.member.controller import MemberController, MemberSettings
from spes_operator.member.view import Inventory, Slot

NAMESPACE = "spes-member-uni-a"


def assignment_json(name="moe-tiny-0", ca="PEM"):
    return {
        "apiVersion": "spes.dev/v1alpha1",
        "kind": "TrainerAssignment",
        "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {
            "jobUID": "uid-1",
            "slot": "0",
            "desired": "Run",
            "template": {},
            "templateHash": "h1",
            "joinSecret": f"{name}-join",
            "sync": {"endpoint": "hub:1", "caBundle": ca},
        },
    }


def secret_json(token, name="moe-tiny-0"):
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "namespace": NAMESPACE,
            "name": f"{name}-join",
            "annotations": {"spes.dev/token-id": token.partition(".")[0]},
        },
        "data": {"token": base64.b64encode(token.encode()).decode()},
    }


class AwayApi:
    """An API that can be cut off, or refuse kinds."""

    def __init__(self, api):
        self._api = api
        self.away = False
        self.refused = frozenset()

    def __getattr__(self, name):
        if self.away:
            raise UnavailableError("connection refused")
        call = getattr(self._api, name)

        async def guarded(*args):
            if self.refused & {args[0], args[1]["kind"] if isinstance(args[1], dict) else ""}:
                raise ForbiddenError(f"{name} {args[0]}")
            return await call(*args)

        return guarded


def applied_of(item):
    return next(one for one in item["status"]["conditions"] if one["type"] == "Applied")


@pytest.fixture
def agent_of():
    def make(hub, cluster=None):
        cluster = cluster or FakeCluster()
        clock = FakeClock()

        async def inventory():
            return Inventory(cluster_id="c1", version="1", slots=(Slot(name="0", memory_bytes=1),))

        settings = MemberSettings(
            inventory=inventory,
            paths=lambda _: WorkloadPaths(
                work=PurePath("w"), secrets=PurePath("s"), data=PurePath("d")
            ),
            clock=clock,
        )
        agent = MemberController("uni-a", hub, cluster, settings)
        agent.clock = clock
        return agent, cluster

    return make


async def assign(hub):
    """What the hub writes for one slot: its assignment and the Secret to join with."""
    await hub.apply("spes-hub", assignment_json())
    await hub.apply("spes-hub", secret_json("t1.secret"))


def test_token_and_ca_are_mirrored_and_follow_the_hub(agent_of):
    async def scenario():
        hub = MemoryApi()
        agent, cluster = agent_of(hub)
        await hub.apply("spes-hub", assignment_json())
        await agent.reconcile()
        assert cluster.created == []
        await hub.apply("spes-hub", secret_json("t1.secret"))
        await agent.reconcile()
        assert len(cluster.created) == 1
        assert cluster.secret_data["moe-tiny-0-join"] == {"token": b"t1.secret", "ca.crt": b"PEM"}
        await hub.apply("spes-hub", secret_json("t2.secret"))
        await agent.reconcile()
        assert cluster.secret_data["moe-tiny-0-join"]["token"] == b"t2.secret"
        assert len(cluster.created) == 1

    asyncio.run(scenario())


def test_gone_assignment_takes_its_secret_and_job_along(agent_of):
    async def scenario():
        hub = MemoryApi()
        agent, cluster = agent_of(hub)
        await assign(hub)
        await agent.reconcile()
        await hub.delete("TrainerAssignment", NAMESPACE, "moe-tiny-0")
        await agent.reconcile()
        assert (cluster.records, cluster.secret_data) == ({}, {})

    asyncio.run(scenario())


def test_without_the_hub_trainers_go_on(agent_of):
    async def scenario():
        hub = AwayApi(MemoryApi())
        agent, cluster = agent_of(hub)
        await assign(hub)
        await agent.reconcile()
        hub.away = True
        await agent.heartbeat.beat()
        with pytest.raises(UnavailableError):
            await agent.reconcile()
        assert len(cluster.records) == 1
        assert "moe-tiny-0-join" in cluster.secret_data

    asyncio.run(scenario())


def test_foreign_job_of_our_name_is_left_alone(agent_of):
    async def scenario():
        hub = MemoryApi()
        agent, cluster = agent_of(hub)
        await assign(hub)
        await agent.reconcile()
        (name,) = cluster.created
        cluster.records.clear()
        cluster.foreign.add(name)
        await agent.reconcile()
        await agent.reconcile()
        assert cluster.stopped == []
        (item,) = (await hub.list("TrainerAssignment")).items
        assert applied_of(item)["reason"] == "NameConflict"

    asyncio.run(scenario())


def test_job_over_the_quota_says_so_and_is_tried_again(agent_of):
    async def scenario():
        hub = MemoryApi()
        agent, cluster = agent_of(hub)
        await assign(hub)
        cluster.refuse_with = ForbiddenError("POST: exceeded quota: gpus (HTTP 403)")
        for _ in range(2):
            await agent.reconcile()
        (item,) = (await hub.list("TrainerAssignment")).items
        assert applied_of(item)["reason"] == "QuotaExceeded"
        assert "exceeded quota: gpus" in applied_of(item)["message"]
        cluster.refuse_with = None
        agent.clock.advance(61)
        await agent.reconcile()
        assert len(cluster.created) == 1

    asyncio.run(scenario())


def test_agent_that_restarts_without_the_hub_stops_nothing(agent_of):
    async def scenario():
        hub = AwayApi(MemoryApi())
        agent, cluster = agent_of(hub)
        await assign(hub)
        await agent.reconcile()
        hub.away = True
        again, _ = agent_of(hub, cluster)
        with pytest.raises(UnavailableError):
            await again.reconcile()
        assert (cluster.stopped, len(cluster.records)) == ([], 1)
        assert "moe-tiny-0-join" in cluster.secret_data
        again.clock.advance(31 * 60)
        with pytest.raises(UnavailableError):
            await again.reconcile()
        assert len(cluster.stopped) == 1

    asyncio.run(scenario())


def test_member_that_is_not_accepted_yet_reports_all_the_same(agent_of):
    async def scenario():
        hub = AwayApi(MemoryApi())
        hub.refused = frozenset({"Lease", "TrainerAssignment", "Secret"})
        agent, _ = agent_of(hub)
        await agent.heartbeat.beat()
        await agent.reconcile()
        assert (await hub.get("MemberReport", NAMESPACE, "report"))["status"]["clusterID"] == "c1"
        assert not agent.health.reaches_hub

    asyncio.run(scenario())


def test_steady_state_writes_nothing(agent_of):
    async def scenario():
        hub = MemoryApi()
        agent, _ = agent_of(hub)
        await assign(hub)
        await agent.reconcile()
        await agent.reconcile()
        before = (await hub.list("TrainerAssignment")).resource_version
        agent.clock.advance(3_600)
        await agent.reconcile()
        assert (await hub.list("TrainerAssignment")).resource_version == before

    asyncio.run(scenario())


def test_agent_runs_by_itself(agent_of):
    async def scenario():
        hub = MemoryApi()
        agent, cluster = agent_of(hub)
        running = asyncio.create_task(agent.run())
        await assign(hub)
        async with asyncio.timeout(5):
            while not cluster.created:
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait([running])
        assert (await hub.get("Lease", NAMESPACE, "heartbeat"))["spec"]["holderIdentity"] == "uni-a"
        assert (await hub.get("MemberReport", NAMESPACE, "report"))["status"]["clusterID"] == "c1"

    asyncio.run(scenario())
