"""An API server as nodes use it: the calls that only kubelets and schedulers make."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from spes_operator.errors import ConflictError, NotFoundError
from spes_operator.k8s.cluster import ClusterApi
from spes_operator.k8s.connection import Connection, Request
from spes_operator.k8s.resources import path_of

from kubelet.pod_spec import Json


class Cluster:
    """One API server."""

    def __init__(self, connection: Connection) -> None:
        """Use `open`."""
        self._connection = connection
        self.api = ClusterApi(connection)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, kubeconfig: Path) -> AsyncIterator[Cluster]:
        """The API server that `kubeconfig` names, until the block ends."""
        connection = await Connection.open(kubeconfig)
        try:
            yield cls(connection)
        finally:
            await connection.close()

    async def merge_status(self, obj: Json, status: Json) -> None:
        """Write fields of an object's status; conditions of other writers stay.

        Raises:
            ConflictError: Another object has that name now.
        """
        metadata = obj["metadata"]
        await self._connection.send(
            Request(
                method="PATCH",
                path=_path(obj, "status"),
                query={},
                body={"metadata": {"uid": metadata["uid"]}, "status": status},
                content_type="application/strategic-merge-patch+json",
            )
        )

    async def bind(self, pod: Json, node: str) -> None:
        """Give a pod its node, as a scheduler does."""
        metadata = pod["metadata"]
        await self._connection.send(
            Request(
                method="POST",
                path=_path(pod, "binding"),
                query={},
                body={
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": node},
                },
            )
        )

    async def forget(self, pod: Json) -> None:
        """Remove a deleted pod whose processes have ended."""
        with contextlib.suppress(NotFoundError, ConflictError):
            await self._connection.send(
                Request(
                    method="DELETE",
                    path=_path(pod),
                    query={},
                    body={
                        "gracePeriodSeconds": 0,
                        "preconditions": {"uid": pod["metadata"]["uid"]},
                    },
                )
            )

    async def merge(self, obj: Json, changes: Json) -> None:
        """Write fields of an object's metadata or spec."""
        await self._connection.send(
            Request(
                method="PATCH",
                path=_path(obj),
                query={},
                body=changes,
                content_type="application/merge-patch+json",
            )
        )


def _path(obj: Json, subresource: str = "") -> str:
    metadata = obj["metadata"]
    return path_of(obj["kind"], metadata.get("namespace", ""), metadata["name"], subresource)
