"""Many members' agents in one process, over one API server that is hub and cluster for all."""

import asyncio
import contextlib
from collections import Counter
from pathlib import Path

from builders.hub_world import MEMORY, MIB
from builders.rights import HUB
from spes_operator.k8s.api import JsonObject, KubeApi
from spes_operator.k8s.cluster import ClusterApi
from spes_operator.k8s.follow import FollowFeed
from spes_operator.member.cluster_backend import ClusterBackend
from spes_operator.member.controller import MemberController, MemberSettings
from spes_operator.member.pod_manifest import POD_PATHS, PodSettings
from spes_operator.member.view import Inventory, MemberLimits, Slot
from spes_operator.names import member_namespace

IMAGE = "trainer:1"
# Requests that are on their way together while objects are made.
_AT_ONCE = 8


def cluster_namespace(member: str) -> str:
    """Where a member's Jobs are."""
    return f"of-{member}"


def objects_of(member: str, labels: dict[str, str]) -> list[JsonObject]:
    """All that an accepted member is, on the hub and in its own cluster."""
    at_hub = member_namespace(member)
    return [
        *(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            for name in (at_hub, cluster_namespace(member))
        ),
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "spes-hub-in-member", "namespace": at_hub},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "spes-hub-in-member",
            },
            "subjects": [HUB.subject],
        },
        {
            "apiVersion": "spes.dev/v1alpha1",
            "kind": "MemberCluster",
            "metadata": {"name": member, "labels": labels},
            "spec": {"accepted": True},
        },
    ]


async def make(api: KubeApi, objects: list[JsonObject]) -> None:
    """Apply them, those of one kind after those of another."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(obj: JsonObject) -> None:
        async with gate:
            await api.apply("test", obj)

    for kind in dict.fromkeys(obj["kind"] for obj in objects):
        await asyncio.gather(*(one(obj) for obj in objects if obj["kind"] == kind))


class ManyAgents:
    """The agents; each has two connections of its own, as in its own process."""

    def __init__(self, kubeconfig: Path, members: list[str]) -> None:
        """Nothing runs before the block."""
        self._kubeconfig = kubeconfig
        self._members = members
        self._stack = contextlib.AsyncExitStack()
        self._apis: list[ClusterApi] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def answers(self) -> Counter[str]:
        """HTTP status -> requests of all agents."""
        return sum((Counter(api.answers) for api in self._apis), Counter())

    async def __aenter__(self):
        for member in self._members:
            hub, local = [
                await self._stack.enter_async_context(ClusterApi.open(self._kubeconfig))
                for _ in range(2)
            ]
            self._apis += [hub, local]
            agent = _agent(member, hub, local)
            self._tasks.append(asyncio.create_task(agent.run()))
        return self

    async def __aexit__(self, *_):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()


def _agent(member: str, hub: KubeApi, local: KubeApi) -> MemberController:
    async def inventory() -> Inventory:
        slot = Slot(name="0", memory_bytes=MEMORY[4], activation_bytes=16 * MIB)
        return Inventory(cluster_id=f"uid-{member}", version="1", slots=(slot,))

    pods = PodSettings(namespace=cluster_namespace(member), image=IMAGE)
    return MemberController(
        member,
        hub,
        ClusterBackend(local, FollowFeed(local), pods),
        MemberSettings(
            inventory=inventory,
            paths=lambda _: POD_PATHS,
            limits=MemberLimits(images=frozenset({IMAGE})),
        ),
    )
