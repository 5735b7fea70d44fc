"""SyncHost: whoever runs the jobs' sync servers for the hub.

On one machine they are processes (`local.sync_host`), on a cluster StatefulSets
(`hub.cluster_sync_host`). The hub asks for a server and is told where it listens.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from spes_api.job import SpesJob

from spes_operator.hub.view import ServerSeen
from spes_operator.names import ObjectKey

# Time for peers' last pushes and a commit after the server was asked to end.
GRACE = timedelta(seconds=120)


class SyncHost(Protocol):
    """The sync servers of one hub."""

    @property
    def watched(self) -> tuple[str, ...]:
        """Kinds whose changes say that a server may have changed."""

    @property
    def leftovers(self) -> tuple[str, ...]:
        """Kinds of objects that the hub must remove after a job, each labelled with its UID."""

    async def keep(self, job: SpesJob) -> ServerSeen:
        """Make the job's server exist as it should; answers how it is now.

        Raises:
            SpesError: As of `KubeApi`.
        """

    async def exists(self, job: ObjectKey, uid: str) -> bool:
        """Whether the server of the job of that name and UID may still run."""
