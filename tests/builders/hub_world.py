"""A hub with its members and one job, all real but for processes, tensors and time."""

import asyncio
import contextlib
from datetime import timedelta
from pathlib import Path, PurePath

from builders.clock import FakeClock, OtherClock
from builders.fake_cluster import FakeCluster
from builders.fake_sync import FakeSync
from spes_api.job import SpesJob
from spes_api.kinds import MemberCluster, TrainerAssignment
from spes_api.status import Images
from spes_operator.errors import ConflictError, NotFoundError, UnavailableError
from spes_operator.hub.controller import HubController
from spes_operator.hub.observe import read_ownership
from spes_operator.hub.ownership import Ownership
from spes_operator.hub.pki import Pki
from spes_operator.hub.settings import HubSettings
from spes_operator.k8s.memory import MemoryApi
from spes_operator.k8s.typed import get_model, list_models
from spes_operator.k8s.workloads import WorkloadPaths
from spes_operator.local.sync_host import LocalSyncHost
from spes_operator.member.controller import MemberController, MemberSettings
from spes_operator.member.view import Inventory, MemberLimits, Slot
from spes_operator.names import ANNOTATION_REASSIGN, ObjectKey, member_of, sync_server_name

MIB = 2**20
KEY = ObjectKey("research", "moe-tiny")
# Fits 8, 4 and 2 experts of moe-tiny.
MEMORY = {8: 48 * MIB, 4: 40 * MIB, 2: 34 * MIB, 0: 30 * MIB}


def job_document(**spec):
    """moe-tiny as in the example, `spec` merged one level deep."""
    base = {
        "model": {"preset": "moe-tiny"},
        "data": {"sources": [{"builtin": "python-stdlib"}], "sequenceTokens": 256},
        "training": {
            "maxTokens": 900000,
            "batchTokens": 1024,
            "precision": "FP32",
            "optimizer": {"learningRate": 0.008},
        },
        "members": {"min": 2, "max": 4},
        "sync": {"everySteps": 10, "timeoutSeconds": 60},
        "reassignment": {
            "unreachableAfterSeconds": 4,
            "reassignAfterSeconds": 10,
            "cooldownAfterHubRestartSeconds": 5,
        },
        "trainer": {"gracePeriodSeconds": 10},
    }
    for name, value in spec.items():
        base[name] = base.get(name, {}) | value if isinstance(value, dict) else value
    return {
        "apiVersion": "spes.dev/v1alpha1",
        "kind": "SpesJob",
        "metadata": {"namespace": KEY.namespace, "name": KEY.name},
        "spec": base,
    }


_PKI = {}


def shared_pki(tmp):
    """Keys take time to make; every world may share them."""
    if not _PKI:
        _PKI["pki"] = Pki.open(Path(tmp))
    return _PKI["pki"]


class World:
    key = KEY

    def __init__(self, tmp):
        self.clock = FakeClock()
        self.api_clock = OtherClock(self.clock)
        self.api = MemoryApi(self.api_clock)
        self.sync = FakeSync()
        self.pki = shared_pki(tmp)
        self.images = ("", "")
        self.job_namespaces = ("",)
        self.hub = self._new_hub()
        self.clusters = {}
        self.agents = {}
        self.inventories = {}
        self.limits = {}

    def _new_hub(self):
        paths = WorkloadPaths(
            work=PurePath("/sync"), secrets=PurePath("/tls"), data=PurePath("/data")
        )
        settings = HubSettings(
            host=LocalSyncHost(self.api, pki=self.pki, paths=lambda _key: paths),
            connect=lambda _server: self.sync,
            images=Images(trainer=self.images[0], sync=self.images[1]),
            job_namespaces=self.job_namespaces,
            clock=self.clock,
        )
        return HubController(self.api, settings)

    # What people do

    async def create_job(self, **spec):
        await self.api.apply("user", job_document(**spec))

    async def change_job(self, *, annotations=None, **spec):
        current = await self.job()
        document = job_document()
        document["spec"] = current.spec.model_dump(by_alias=True, mode="json", exclude_none=True)
        for name, value in spec.items():
            document["spec"][name] = (
                document["spec"].get(name, {}) | value if isinstance(value, dict) else value
            )
        if annotations:
            document["metadata"]["annotations"] = annotations
        await self.api.apply("user", document)

    async def reassign_now(self, value="1"):
        await self.change_job(annotations={ANNOTATION_REASSIGN: value})

    async def change_member(self, name, *, labels=None, **spec):
        await self.api.apply(
            "user",
            {
                "apiVersion": "spes.dev/v1alpha1",
                "kind": "MemberCluster",
                "metadata": {"name": name, "labels": labels or {}},
                "spec": {"accepted": True, "heartbeat": {"intervalSeconds": 1}} | spec,
            },
        )

    async def add_member(self, name, *capacities, limits=None, cluster_id=""):
        """A member with one slot per capacity in experts."""
        await self.change_member(name)
        self.clusters[name] = FakeCluster()
        self.offer(name, *capacities, cluster_id=cluster_id)
        self.limits[name] = limits or MemberLimits()
        self.start_agent(name)

    def offer(self, name, *capacities, cluster_id=""):
        self.inventories[name] = Inventory(
            cluster_id=cluster_id or f"uid-{name}",
            version="1",
            slots=tuple(
                Slot(name=str(index), memory_bytes=MEMORY[capacity], activation_bytes=16 * MIB)
                for index, capacity in enumerate(capacities)
            ),
        )

    def start_agent(self, name):
        async def inventory():
            return self.inventories[name]

        self.agents[name] = MemberController(
            name,
            self.api,
            self.clusters[name],
            MemberSettings(
                inventory=inventory,
                paths=lambda slot: WorkloadPaths(
                    work=PurePath(f"/slots/{name}.{slot}"),
                    secrets=PurePath("secrets"),
                    data=PurePath("/data"),
                ),
                limits=self.limits[name],
                clock=self.clock,
            ),
        )

    def stop_agent(self, name):
        del self.agents[name]

    # Time

    async def listen(self):
        """The runner starts the sync server."""
        await self.api.patch_status(
            "SyncServer",
            KEY.namespace,
            sync_server_name(KEY.name),
            {
                "ready": True,
                "endpoint": "127.0.0.1:7000",
                "controlEndpoint": "127.0.0.1:7001",
                "restarts": 0,
                "message": "",
            },
        )

    async def settle(self, *, passes=30):
        """Let hub and agents work until nothing changes any more."""
        for _ in range(passes):
            before = (await self.api.list("SpesJob")).resource_version, len(self.sync.plans)
            await self.step()
            after = (await self.api.list("SpesJob")).resource_version, len(self.sync.plans)
            if before == after:
                return
        raise AssertionError(f"nothing settles in {passes} passes")

    async def step(self):
        """One pass of everybody; heartbeats are for `advance`."""
        for name in sorted(self.agents):
            await quietly(self.agents[name].reconcile())
        await breathe()
        await quietly(self.hub.reconcile_members())
        await quietly(self.hub.reconcile(KEY))
        await quietly(self.hub.remove_leftovers())
        await breathe()

    async def advance(self, seconds, *, every=1.0):
        """Let time pass, everybody working meanwhile."""
        passed = 0.0
        while passed < seconds:
            self.clock.advance(min(every, seconds - passed))
            passed += every
            await self.beat()
            await self.step()
        await self.settle()

    async def beat(self):
        for agent in self.agents.values():
            await agent.heartbeat.beat()

    async def restart_hub(self):
        await self.hub.close()
        self.hub = self._new_hub()

    def forbid_writes(self):
        """From now on a write to the API fails the test."""

        async def refuse(*_args, **_options):
            raise AssertionError("a write in steady state")

        for name in ("create", "apply", "replace", "patch_status", "delete"):
            setattr(self.api, name, refuse)

    # A whole start

    async def start_training(self, *peers, rates=None):
        """Until every one of `peers` is placed; the job exists and its members too."""
        await self.beat()
        await self.settle()
        await self.listen()
        await self.settle()
        for peer in peers:
            self.run_trainer(peer, rate=(rates or {}).get(peer, 0.0))
        await self.settle()
        self.sync.seed()
        await self.settle()
        self.sync.catch_up(*peers)
        await self.settle()

    def run_trainer(self, peer, *, rate=0.0, version=-1):
        """The peer's process starts and joins with its token."""
        job = self.trainer_job(peer)
        cluster = self.clusters[member_of(peer)]
        (mount,) = job.secret_mounts
        token = cluster.secret_data[mount.secret]["token"].decode()
        cluster.set_status(job.name, ready=True)
        self.sync.connect(peer, token=token.partition(".")[0], rate=rate, version=version)

    def join_again(self, peer):
        self.run_trainer(peer)
        self.sync.catch_up(peer)

    def trainer_job(self, peer):
        cluster = self.clusters[member_of(peer)]
        (job,) = [job for job in cluster.records.values() if peer in job.command]
        return job

    # What can be seen

    async def job(self):
        return await get_model(self.api, SpesJob, *KEY)

    async def member(self, name):
        return await get_model(self.api, MemberCluster, "", name)

    async def ownership(self) -> Ownership | None:
        return await read_ownership(self.api, await self.job())

    async def counts(self):
        ownership = await self.ownership()
        return {peer: len(ownership.owned_by(peer)) for peer in ownership.peers}

    async def assignments(self):
        return {item.peer: item for item in await list_models(self.api, TrainerAssignment)}

    async def condition(self, kind):
        return next(one for one in (await self.job()).status.conditions if one.type == kind)

    async def events(self):
        found = (await self.api.list("Event")).items
        return sorted(found, key=lambda event: int(event["metadata"]["resourceVersion"]))

    async def reasons(self):
        return [event["reason"] for event in await self.events()]

    async def messages(self, reason):
        return [event["message"] for event in await self.events() if event["reason"] == reason]


async def quietly(coroutine):
    """A pass may end early; the next one goes on."""
    with contextlib.suppress(ConflictError, NotFoundError, UnavailableError):
        await coroutine


async def breathe():
    """Let background tasks see what changed."""
    for _ in range(10):
        await asyncio.sleep(0)


def seconds(number):
    return timedelta(seconds=number)
