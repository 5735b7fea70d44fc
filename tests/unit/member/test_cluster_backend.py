"""The member's own cluster over the in-memory API; pods and their ends are played by hand."""

import asyncio
from datetime import timedelta

import pytest
from builders.pod_states import failed_create
from builders.processes import make_job
from spes_operator.errors import AlreadyExistsError, InvalidError
from spes_operator.k8s.follow import FollowFeed
from spes_operator.k8s.memory import MemoryApi
from spes_operator.k8s.workloads import SecretMount, Stop
from spes_operator.member.cluster_backend import ClusterBackend
from spes_operator.member.pod_manifest import POD_PATHS, PodSettings, WorkVolume

JOB = make_job(
    name="tiny-a-12345",
    secret_mounts=(SecretMount(secret="tiny-a-join", directory=POD_PATHS.secrets),),
)
STOP = Stop(name=JOB.name, grace=timedelta(seconds=1))


class CountingApi(MemoryApi):
    def __init__(self):
        super().__init__()
        self.calls = []

    async def list(self, kind, namespace="", labels=None):
        self.calls.append(f"list {kind}")
        return await super().list(kind, namespace, labels)

    async def delete(self, kind, namespace, name):
        self.calls.append(f"delete {kind}")
        await super().delete(kind, namespace, name)


@pytest.fixture
def play():
    def run(scenario, **changes):
        async def whole():
            api = CountingApi()
            settings = PodSettings(namespace="spes", image="trainer", **changes)
            await scenario(api, ClusterBackend(api, FollowFeed(api), settings))

        asyncio.run(whole())

    return run


async def put_pod(api, job, name="p", **status):
    """What the Job controller does."""
    template = (await api.get("Job", "spes", job.name))["spec"]["template"]
    labels = template["metadata"]["labels"] | {"batch.kubernetes.io/job-name": job.name}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "spes", "name": name, "labels": labels},
        "spec": template["spec"] | {"nodeName": "n1"},
    }
    await api.create("controller", pod)
    await api.patch_status("Pod", "spes", name, status)


def test_job_is_made_once_and_listed(play):
    async def scenario(api, backend):
        await backend.create(JOB)
        with pytest.raises(AlreadyExistsError):
            await backend.create(JOB)
        await put_pod(api, JOB, conditions=[{"type": "Ready", "status": "True"}])
        (listed,) = await backend.jobs()
        assert (listed.name, listed.slot, listed.status.ready) == (JOB.name, "0", True)
        assert backend.placed == {"0": ("n1", False)}

    play(scenario)


def test_pod_without_its_job_holds_the_slot_until_it_has_ended(play):
    async def scenario(api, backend):
        await backend.create(JOB)
        await put_pod(api, JOB, phase="Running")
        await backend.jobs()
        await backend.stop(STOP)
        (listed,) = await backend.jobs()
        assert (listed.name, listed.status.active) == (JOB.name, True)
        await backend.stop(STOP)
        assert api.calls.count("delete Job") == 1
        await api.patch_status("Pod", "spes", "p", {"phase": "Failed"})
        assert (await backend.jobs(), backend.placed) == ((), {})

    play(scenario)


def test_a_pod_that_is_being_deleted_is_told_from_one_that_is_not(play):
    async def scenario(api, backend):
        await backend.create(JOB)
        await put_pod(api, JOB, phase="Running")
        pod = await api.get("Pod", "spes", "p")
        metadata = pod["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        await api.replace("kubernetes", pod | {"metadata": metadata})
        await backend.jobs()
        assert backend.placed == {"0": ("n1", True)}

    play(scenario)


def test_jobs_of_others_are_left_alone(play):
    async def scenario(api, backend):
        for name, labels in (("a", {}), ("b", {"app.kubernetes.io/managed-by": "spes-member"})):
            metadata = {"namespace": "spes", "name": name, "labels": labels}
            await api.create(
                "other", {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
            )
        assert await backend.jobs() == ()

    play(scenario)


def test_events_are_asked_for_only_when_a_pod_is_missing(play):
    async def scenario(api, backend):
        await backend.create(JOB)
        event = failed_create("exceeded quota: gpus") | {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": "spes", "name": "e"},
            "involvedObject": {"kind": "Job", "name": JOB.name},
        }
        await api.create("controller", event)
        (listed,) = await backend.jobs()
        assert listed.status.reason == "QuotaExceeded"
        await put_pod(api, JOB, phase="Pending")
        api.calls.clear()
        (listed,) = await backend.jobs()
        assert listed.status.reason == "Starting"
        assert api.calls == ["list Job", "list Pod"]

    play(scenario)


def test_secrets_are_kept_and_the_agents_own_is_none_of_them(play):
    async def scenario(api, backend):
        await backend.put_secret("tiny-a-join", {"token": b"1"}, {"id": "t1"})
        await backend.put_secret("tiny-a-join", {"token": b"2"}, {"id": "t2"})
        metadata = {"namespace": "spes", "name": "spes-hub-credential"}
        await api.apply("agent", {"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
        assert await backend.secrets() == {"tiny-a-join": {"id": "t2"}}
        assert (await api.get("Secret", "spes", "tiny-a-join"))["data"] == {"token": "Mg=="}
        await backend.delete_secret("tiny-a-join")
        assert await backend.secrets() == {}

    play(scenario)


def test_volume_belongs_to_the_join_secret_and_is_made_once(play):
    async def scenario(api, backend):
        await backend.put_secret("tiny-a-join", {"token": b"1"}, {})
        await backend.create(JOB)
        await backend.create(make_job(name="another", secret_mounts=JOB.secret_mounts))
        (claim,) = (await api.list("PersistentVolumeClaim", "spes")).items
        secret = await api.get("Secret", "spes", "tiny-a-join")
        assert claim["metadata"]["name"] == "assignment-work"
        (owner,) = claim["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Secret", secret["metadata"]["uid"])

    play(scenario, work_volume=WorkVolume(kind="pvc"))


def test_changes_of_jobs_and_pods_wake(play):
    async def scenario(api, backend):
        await backend.create(JOB)
        changes = backend.changes()
        async with asyncio.timeout(5):
            await anext(changes)
            await put_pod(api, JOB, phase="Pending")
            await anext(changes)
        await changes.aclose()

    play(scenario)


def test_feed_that_fails_is_noticed():
    class BrokenFeed:
        async def run(self, *_):
            raise InvalidError("no such kind")

    async def scenario():
        settings = PodSettings(namespace="spes", image="trainer")
        changes = ClusterBackend(MemoryApi(), BrokenFeed(), settings).changes()
        async with asyncio.timeout(5):
            with pytest.raises(InvalidError, match="no such kind"):
                await anext(changes)

    asyncio.run(scenario())
