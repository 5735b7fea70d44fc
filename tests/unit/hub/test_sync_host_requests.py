"""What is asked about a sync server as a workload: all at first, and then hardly anything."""

import asyncio
from collections import Counter

import pytest
from builders.clock import FakeClock
from builders.hub_world import KEY, job_document, shared_pki
from builders.training_world import B, two_members
from spes_api.job import SpesJob
from spes_operator.hub.cluster_sync_host import ClusterSettings, ClusterSyncHost
from spes_operator.hub.server_certificates import OwnCertificates
from spes_operator.hub.sync_manifests import Exposure, PodSettings
from spes_operator.k8s.memory import MemoryApi


class Counted(MemoryApi):
    """Counts what is read, by kind."""

    def __init__(self):
        super().__init__()
        self.read = Counter()

    async def get(self, kind, namespace, name):
        self.read[kind] += 1
        return await super().get(kind, namespace, name)


class Scene:
    """A host, the job that it serves, and the cluster's part played by hand."""

    def __init__(self, pki):
        self.api, self.clock = Counted(), FakeClock()
        certificates = OwnCertificates(self.api, pki, self.clock)
        exposure = Exposure(service_type="ClusterIP", host="sync.example", port=443)
        settings = ClusterSettings(exposure=exposure, pod=PodSettings())
        self.host = ClusterSyncHost(self.api, certificates, settings, self.clock)
        document = job_document()
        document["metadata"] |= {"uid": "uid-1", "generation": 1}
        document["status"] = {"images": {"trainer": "t:1", "sync": "s:1"}}
        self.job = SpesJob.model_validate(document)

    def keep(self):
        self.api.read.clear()
        return asyncio.run(self.host.keep(self.job))

    def make_pod(self, uid="uid-1"):
        metadata = {"namespace": KEY.namespace, "name": "moe-tiny-sync-0"}
        metadata["labels"] = {"spes.dev/job-uid": uid}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        status = {"podIP": "10.0.0.9", "conditions": [{"type": "Ready", "status": "True"}]}

        async def put():
            await self.api.apply("kubelet", pod)
            await self.api.patch_status("Pod", KEY.namespace, "moe-tiny-sync-0", status)

        asyncio.run(put())


@pytest.fixture
def scene(tmp_path_factory):
    return Scene(shared_pki(tmp_path_factory.getbasetemp() / "shared-tls"))


def test_only_the_pod_is_asked_for_while_the_rest_was_complete(scene):
    scene.keep()
    scene.make_pod()
    assert scene.keep().ready
    assert scene.api.read == {"Pod": 1}
    scene.clock.advance(31)
    scene.keep()
    kinds = ("Pod", "Service", "Secret", "PersistentVolumeClaim", "StatefulSet")
    assert scene.api.read == dict.fromkeys(kinds, 1)


def test_everything_is_looked_at_when_there_is_no_pod(scene):
    scene.keep()
    asyncio.run(scene.api.delete("StatefulSet", KEY.namespace, "moe-tiny-sync"))
    scene.keep()
    assert asyncio.run(scene.api.get("StatefulSet", KEY.namespace, "moe-tiny-sync"))


def test_a_namesakes_pod_is_waited_for(scene):
    scene.make_pod(uid="uid-0")
    assert "still ending" in scene.keep().message
    assert asyncio.run(scene.api.get("StatefulSet", KEY.namespace, "moe-tiny-sync"))


async def looks_in(world, seconds):
    """How often the server is looked at as a workload in so long."""
    keep, count = world.hub._settings.host.keep, []

    async def counted(job):
        count.append(job)
        return await keep(job)

    world.hub._settings.host.keep = counted
    await world.advance(seconds, every=1)
    world.hub._settings.host.keep = keep
    return len(count)


def test_a_server_with_all_its_peers_is_hardly_looked_at(play):
    async def scenario(world):
        await two_members(world)
        assert await looks_in(world, 120) <= 1
        world.sync.disconnect(B)
        assert await looks_in(world, 120) >= 3

    play(scenario)


def test_a_server_that_cannot_be_reached_is_looked_at_until_it_can(play):
    async def scenario(world):
        await two_members(world)
        world.sync.cut()
        await world.settle()
        assert await looks_in(world, 10) >= 5
        world.sync.restore()
        async with asyncio.timeout(20):
            while world.hub.sync_state(KEY) is None:
                await asyncio.sleep(0.01)
        await world.settle()
        assert await looks_in(world, 60) <= 2

    play(scenario)
