"""What a cluster is and lends, read from its API."""

import asyncio

import pytest
from builders.clock import FakeClock
from spes_operator.k8s.memory import MemoryApi
from spes_operator.member.cluster_inventory import ClusterInventory, InventorySettings
from spes_operator.member.inventory import NodePolicy


def node(name="n1", *, gpus="1", ready="True", **spec):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"nvidia.com/gpu.product": "T4", "nvidia.com/gpu.memory": "1024"},
        },
        "spec": {"podCIDR": "10.0.0.0/24", **spec},
        "status": {
            "allocatable": {"nvidia.com/gpu": gpus},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


class CountingApi(MemoryApi):
    def __init__(self):
        super().__init__()
        self.listed = []

    async def list(self, kind, namespace="", labels=None):
        self.listed.append(kind)
        return await super().list(kind, namespace, labels)


@pytest.fixture
def play():
    def run(scenario):
        async def whole():
            api, clock = CountingApi(), FakeClock()
            await put(
                api, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}
            )

            async def version():
                return "v1.34.4"

            inventory = ClusterInventory(
                api,
                InventorySettings(namespace="spes", version="1", nodes=NodePolicy()),
                placed=dict,
                kubernetes_version=version,
                clock=clock,
            )
            await scenario(api, clock, inventory)

        asyncio.run(whole())

    return run


async def put(api, obj):
    made = await api.apply("test", obj)
    if status := obj.get("status"):
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "")
        made = await api.patch_status(obj["kind"], namespace, metadata["name"], status)
    return made


def test_cluster_says_who_it_is_and_what_its_quotas_are(play):
    async def scenario(api, _clock, inventory):
        quota = {"hard": {"pods": "4"}, "used": {"pods": "1"}}
        metadata = {"name": "q", "namespace": "spes"}
        await put(
            api,
            {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "status": quota},
        )
        found = await inventory.inventory()
        system = await api.get("Namespace", "", "kube-system")
        assert found.cluster_id == system["metadata"]["uid"]
        assert found.kubernetes_version == "v1.34.4"
        assert found.quotas[0].model_dump() == {"name": "q", **quota}

    play(scenario)


def test_nodes_are_read_again_only_when_what_they_offer_changes(play):
    async def scenario(api, _clock, inventory):
        await put(api, node())
        assert len((await inventory.inventory()).slots) == 1
        seen = await api.get("Node", "", "n1")
        assert not inventory.on_node({**seen, "spec": {"podCIDR": "10.0.1.0/24"}})
        await inventory.inventory()
        assert api.listed.count("Node") == 1
        cordoned = await put(api, node(unschedulable=True))
        assert inventory.on_node(cordoned)
        assert (await inventory.inventory()).slots == ()
        assert api.listed.count("Node") == 2

    play(scenario)


def test_a_silent_node_that_is_taken_away_is_noticed_at_once(play):
    """It offers nothing before and after; but its trainer is not waited for any more."""

    async def scenario(api, _clock, inventory):
        await put(api, node())
        await inventory.inventory()
        for changed in (node(ready="Unknown"), node(ready="Unknown", unschedulable=True)):
            assert inventory.on_node(await put(api, changed))
            await inventory.inventory()
        assert not inventory.on_node(await api.get("Node", "", "n1"))

    play(scenario)


def test_node_that_is_deleted_is_missed_for_minutes_at_most(play):
    async def scenario(api, clock, inventory):
        await put(api, node())
        await inventory.inventory()
        await api.delete("Node", "", "n1")
        clock.advance(301)
        assert (await inventory.inventory()).slots == ()

    play(scenario)
