"""The implementations of KubeApi, each as a world in which the same scenario can be played."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from builders.control_plane import ControlPlane
from spes_operator.clock import SystemClock
from spes_operator.k8s.api import KubeApi, WatchEvent
from spes_operator.k8s.cached import CachedApi, Kept
from spes_operator.k8s.cluster import ClusterApi
from spes_operator.k8s.memory import MemoryApi

# Far above what a scenario takes, also on a loaded machine.
SCENARIO_SECONDS = 30.0
# Far longer than a scenario: what is read must be right without another listing.
_KEPT = dict.fromkeys(
    ("ConfigMap", "MemberCluster", "Lease", "Event"), Kept(max_age=timedelta(hours=1))
)


@dataclass(frozen=True, kw_only=True)
class World:
    """An API server with a namespace of the test's own."""

    control_plane: ControlPlane | None = None
    """None: in memory."""
    is_cached: bool = False
    """Reads are answered by a cache without a feed: nothing but its own rules keeps them right."""
    namespace: str = field(default_factory=lambda: f"test-{uuid.uuid4().hex[:8]}")

    def play(self, scenario: Callable[[KubeApi], Awaitable[None]]) -> None:
        """Run a scenario against the API server."""

        async def whole() -> None:
            async with asyncio.timeout(SCENARIO_SECONDS), self.open() as api:
                await scenario(api)

        asyncio.run(whole())

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[KubeApi]:
        """The API server, as admin."""
        async with self._open_server() as api:
            yield CachedApi(api, _KEPT, SystemClock()) if self.is_cached else api

    @contextlib.asynccontextmanager
    async def _open_server(self) -> AsyncIterator[KubeApi]:
        if self.control_plane is None:
            yield MemoryApi()
            return
        async with ClusterApi.open(self.control_plane.kubeconfig) as api:
            yield api

    def config_map(self, name: str = "a", *, version: str = "", **data: str) -> dict[str, Any]:
        """A ConfigMap of the namespace; the simplest object with a body."""
        metadata = {"name": name, "namespace": self.namespace}
        if version:
            metadata["resourceVersion"] = version
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}

    def lease(self, name: str = "heartbeat", *, holder: str = "uni-a") -> dict[str, Any]:
        """A Lease of the namespace."""
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"holderIdentity": holder},
        }


def version_of(obj: dict[str, Any]) -> str:
    """The object's resourceVersion."""
    return str(obj["metadata"]["resourceVersion"])


async def changes(
    api: KubeApi, kind: str, namespace: str, *, from_version: str, count: int
) -> list[WatchEvent]:
    """The next `count` changes."""
    events = []
    async with contextlib.aclosing(api.watch(kind, namespace, from_version=from_version)) as watch:
        async for event in watch:
            events.append(event)
            if len(events) == count:
                break
    return events
