"""Sync servers as processes of this machine: writes the `SyncServer` objects that are played here.

`sync_servers` runs what is written, and says in the object's status where it listens.
"""

from __future__ import annotations

from collections.abc import Callable

from spes_api.job import SpesJob

from spes_operator.errors import NotFoundError
from spes_operator.hub.pki import Pki
from spes_operator.hub.sync_host import GRACE
from spes_operator.hub.sync_objects import labels, secret
from spes_operator.hub.view import ServerSeen
from spes_operator.k8s.api import KubeApi
from spes_operator.k8s.sync_server import SyncServer, SyncServerSpec, WorkloadMetadata
from spes_operator.k8s.typed import get_model
from spes_operator.k8s.workloads import WorkloadPaths
from spes_operator.names import HUB_OWNER, LABEL_JOB_UID, ObjectKey, sync_server_name, sync_tls_name


class LocalSyncHost:
    """SyncHost over `SyncServer` objects."""

    watched: tuple[str, ...] = ("SyncServer",)
    leftovers: tuple[str, ...] = ("SyncServer",)

    def __init__(
        self, api: KubeApi, *, pki: Pki, paths: Callable[[ObjectKey], WorkloadPaths]
    ) -> None:
        """`paths`: where the server of a job finds its volume and its certificate."""
        self._api = api
        self._pki = pki
        self._paths = paths

    async def keep(self, job: SpesJob) -> ServerSeen:
        """The certificate once, the workload whenever it differs."""
        key = ObjectKey(job.metadata.namespace, job.metadata.name)
        try:
            await self._api.get("Secret", key.namespace, sync_tls_name(key.name))
        except NotFoundError:
            files = self._pki.server_files()
            await self._api.create(HUB_OWNER, secret(job, sync_tls_name(key.name), files))
        wanted = server_workload(job, self._paths(key))
        server = await self._get(key)
        if server is None or not wanted.says_the_same(server):
            await self._api.apply(HUB_OWNER, wanted.to_json())
        status = server.status if server else wanted.status
        return ServerSeen(
            ready=status.ready,
            endpoint=status.endpoint,
            control_endpoint=status.control_endpoint,
            ca_bundle=self._pki.ca_pem,
            message=status.message,
        )

    async def exists(self, job: ObjectKey, uid: str) -> bool:
        """Its object is there until its process has ended."""
        server = await self._get(job)
        return server is not None and server.metadata.labels.get(LABEL_JOB_UID) == uid

    async def _get(self, job: ObjectKey) -> SyncServer | None:
        return await get_model(self._api, SyncServer, job.namespace, sync_server_name(job.name))


def server_workload(job: SpesJob, paths: WorkloadPaths) -> SyncServer:
    """The workload; the runner adds the ports, because only it knows which are free."""
    name = job.metadata.name
    return SyncServer(
        metadata=WorkloadMetadata(
            namespace=job.metadata.namespace,
            name=sync_server_name(name),
            labels=labels(job),
        ),
        spec=SyncServerSpec(
            command=(
                *("spes-sync", "serve"),
                *("--dir", str(paths.work)),
                *("--tls", str(paths.secrets)),
            ),
            directory=str(paths.work),
            tls_secret=sync_tls_name(name),
            tls_directory=str(paths.secrets),
            grace_seconds=int(GRACE.total_seconds()),
        ),
    )
