"""What a member's cluster is and lends, read from its API server: who it is, nodes, quotas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from spes_api.kinds import QuotaReport

from spes_operator.clock import Clock
from spes_operator.k8s.api import JsonObject, KubeApi
from spes_operator.member.inventory import (
    NodePolicy,
    Placed,
    Standing,
    slots_of_nodes,
    standing_of_node,
)
from spes_operator.member.view import Inventory, Slot

# Every cluster has it, and keeps it for life: its UID is the cluster's identity.
_IDENTITY = "kube-system"
# Nodes are read anew when one changes in a way that matters, and after this long anyway: a node
# that is deleted need not have changed before.
_NODES_AGE = timedelta(minutes=5)
# As many as a report holds.
_MAX_QUOTAS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class InventorySettings:
    """What the member's admin lends."""

    namespace: str
    """Of the trainers; its quotas are reported."""
    version: str
    """Of the agent."""
    slots: tuple[Slot, ...] = ()
    """Declared by hand; else they are found by `nodes`."""
    nodes: NodePolicy | None = None
    datasets: Mapping[str, str] = field(default_factory=dict)
    """Name -> hash of the manifest."""


class ClusterInventory:
    """Answers what is lent now."""

    def __init__(
        self,
        api: KubeApi,
        settings: InventorySettings,
        *,
        placed: Callable[[], Mapping[str, Placed]],
        kubernetes_version: Callable[[], Awaitable[str]],
        clock: Clock,
    ) -> None:
        """Nothing is read yet.

        Args:
            api: The member's API server.
            settings: What its admin lends.
            placed: Slot -> where its trainer's pod is.
            kubernetes_version: Of the API server.
            clock: For the age of what was read.
        """
        self._api = api
        self._settings = settings
        self._placed = placed
        self._kubernetes_version = kubernetes_version
        self._clock = clock
        self._identity: tuple[str, str] | None = None
        self._nodes: Sequence[JsonObject] = ()
        self._standings: dict[str, Standing] = {}
        self._nodes_read_at: float | None = None

    async def inventory(self) -> Inventory:
        """What is lent now, and by whom.

        Raises:
            SpesError: The member's API server refuses or does not answer.
        """
        cluster_id, version = await self._who()
        settings = self._settings
        slots = settings.slots
        if settings.nodes is not None:
            nodes = await self._current_nodes()
            slots = slots_of_nodes(nodes, settings.nodes, self._placed())
        return Inventory(
            cluster_id=cluster_id,
            version=settings.version,
            kubernetes_version=version,
            slots=slots,
            datasets=settings.datasets,
            quotas=await self._quotas(),
        )

    def on_node(self, node: JsonObject) -> bool:
        """Take notice of a node; answers whether what it means for slots has changed."""
        assert self._settings.nodes is not None  # else nobody watches nodes
        standing = standing_of_node(node, self._settings.nodes)
        if self._standings.get(node["metadata"]["name"], Standing()) == standing:
            return False
        self._nodes_read_at = None
        return True

    async def _who(self) -> tuple[str, str]:
        """The cluster's identity and version, read once."""
        if self._identity is None:
            namespace = await self._api.get("Namespace", "", _IDENTITY)
            self._identity = str(namespace["metadata"]["uid"]), await self._kubernetes_version()
        return self._identity

    async def _current_nodes(self) -> Sequence[JsonObject]:
        assert self._settings.nodes is not None
        now = self._clock.monotonic()
        read_at = self._nodes_read_at
        if read_at is None or now - read_at > _NODES_AGE.total_seconds():
            self._nodes = (await self._api.list("Node")).items
            self._standings = {
                node["metadata"]["name"]: standing_of_node(node, self._settings.nodes)
                for node in self._nodes
            }
            self._nodes_read_at = now
        return self._nodes

    async def _quotas(self) -> tuple[QuotaReport, ...]:
        listing = await self._api.list("ResourceQuota", self._settings.namespace)
        return tuple(
            QuotaReport(
                name=quota["metadata"]["name"],
                hard=quota.get("status", {}).get("hard", {}),
                used=quota.get("status", {}).get("used", {}),
            )
            for quota in listing.items[:_MAX_QUOTAS]
        )
