"""Nodes as the API server sees them: a Node object, and a Lease that says it is alive."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from spes_operator.errors import AlreadyExistsError, SpesError

from kubelet.cluster import Cluster
from kubelet.pod_spec import Json
from kubelet.pod_status import HOST_IP, timestamp

logger = logging.getLogger(__name__)

_OWNER = "kubelet"
_LEASES = "kube-node-lease"
_ROOM: Mapping[str, str] = {"cpu": "16", "memory": "64Gi", "pods": "110"}
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """A node to play."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)
    """On top of CPU, memory and pods; for example GPUs."""


def read_nodes(file: Path) -> tuple[NodeSpec, ...]:
    """The nodes of a YAML list with `name`, `labels` and `capacity`."""
    entries: list[dict[str, Any]] = yaml.safe_load(file.read_text())
    return tuple(NodeSpec(**entry) for entry in entries)


class Node:
    """A node, and whether its kubelet is there."""

    def __init__(self, spec: NodeSpec, cluster: Cluster, heartbeat: timedelta) -> None:
        """Known to nobody before `start`."""
        self.name = spec.name
        self.present = False
        """Pods run on it, and it talks to the API server."""
        self._spec = spec
        self._cluster = cluster
        self._heartbeat = heartbeat
        self._beating: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Register, be Ready, and beat from now on."""
        try:
            await self._cluster.api.create(_OWNER, self._document())
        except AlreadyExistsError:
            logger.info("node came back name=%s", self.name)
        await self._beat()
        await self._write_status(ready=True, reason="KubeletReady")
        self.present = True
        self._beating = asyncio.create_task(self._beat_for_ever())

    async def say_goodbye(self) -> None:
        """Tell that the machine shuts down: no pod is to come here."""
        await self._write_status(ready=False, reason="KubeletNotReady")

    def fall_silent(self) -> None:
        """Say nothing any more."""
        self.present = False
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None

    def _document(self) -> Json:
        labels = {"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels | dict(self._spec.labels)},
        }

    async def _write_status(self, *, ready: bool, reason: str) -> None:
        node = await self._cluster.api.get("Node", "", self.name)
        now = timestamp(datetime.now(UTC))
        states = {"Ready": (ready, reason)} | dict.fromkeys(
            _PRESSURES, (False, "KubeletHasSufficient")
        )
        room = {**_ROOM, **self._spec.capacity}
        status = {
            "capacity": room,
            "allocatable": room,
            "addresses": [
                {"type": "InternalIP", "address": HOST_IP},
                {"type": "Hostname", "address": self.name},
            ],
            "conditions": [
                {
                    "type": kind,
                    "status": "True" if holds else "False",
                    "reason": why,
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }
                for kind, (holds, why) in states.items()
            ],
        }
        await self._cluster.merge_status(node, status)

    async def _beat_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat.total_seconds() * random.uniform(0.8, 1))  # noqa: S311 - no secret
            try:
                await self._beat()
            except SpesError as error:
                logger.warning("heartbeat lost node=%s error=%s", self.name, error)

    async def _beat(self) -> None:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        await self._cluster.api.apply(
            _OWNER,
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self.name, "namespace": _LEASES},
                "spec": {
                    "holderIdentity": self.name,
                    "leaseDurationSeconds": 40,
                    "renewTime": now,
                },
            },
        )
