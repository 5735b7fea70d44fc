"""Sync servers as StatefulSets of the hub's cluster: SyncHost over an API server.

Each pass makes what is missing, in the one order in which every prefix is safe: Service, its
address, certificate, volume, StatefulSet. What the objects say is in `sync_manifests`.
"""

from __future__ import annotations

from dataclasses import dataclass

from spes_api.job import SpesJob

from spes_operator.errors import ForbiddenError, InvalidError
from spes_operator.hub.server_certificates import ServerCertificates
from spes_operator.hub.sync_manifests import (
    CONTROL_PORT,
    Address,
    Exposure,
    PodSettings,
    address_of,
    says_the_same,
    service,
    stateful_set,
    volume_claim,
)
from spes_operator.hub.sync_pod import pod_seen
from spes_operator.hub.view import ServerSeen
from spes_operator.k8s.api import JsonObject, KubeApi
from spes_operator.k8s.typed import find_object
from spes_operator.names import HUB_OWNER, LABEL_JOB_UID, ObjectKey, sync_pod_name

_STILL_ENDING = "the sync server of a deleted job of this name is still ending"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """What the hub's admin decides about sync servers."""

    exposure: Exposure
    pod: PodSettings


class _NotOursError(Exception):
    """An object of a name that is needed belongs to a deleted job, or to somebody else."""


class ClusterSyncHost:
    """SyncHost over StatefulSets."""

    # A cluster removes them itself, and its pods are asked for while a server is away.
    watched: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()

    def __init__(
        self, api: KubeApi, certificates: ServerCertificates, settings: ClusterSettings
    ) -> None:
        """Nothing is read or written yet."""
        self._api = api
        self._certificates = certificates
        self._settings = settings

    async def keep(self, job: SpesJob) -> ServerSeen:
        """Make what is missing or differs; answers how the server is."""
        try:
            return await self._keep(job)
        except _NotOursError as error:
            return ServerSeen(endpoint=job.status.sync_endpoint, message=str(error))
        except (ForbiddenError, InvalidError) as error:
            problem = f"the hub's cluster refuses the sync server's objects: {error}"
            return ServerSeen(endpoint=job.status.sync_endpoint, message=problem, problem=problem)

    async def exists(self, job: ObjectKey, uid: str) -> bool:
        """Its pod may still serve after all else is gone."""
        pod = await find_object(self._api, "Pod", job.namespace, sync_pod_name(job.name))
        return pod is not None and _uid_label(pod) == uid

    async def _keep(self, job: SpesJob) -> ServerSeen:
        exposure = self._settings.exposure
        address = address_of(await self._make(service(job, exposure), job), job, exposure)
        if address is None:
            return ServerSeen(message="the sync server's Service has no address yet")
        ca_bundle = await self._certificates.keep(job, address.host)
        if ca_bundle is None:
            return ServerSeen(message="the sync server's certificate is not issued yet")
        await self._make(volume_claim(job), job)
        await self._make(stateful_set(job, self._settings.pod), job)
        return await self._seen(job, address, ca_bundle)

    async def _seen(self, job: SpesJob, address: Address, ca_bundle: str) -> ServerSeen:
        found = await find_object(
            self._api, "Pod", job.metadata.namespace, sync_pod_name(job.metadata.name)
        )
        if found is not None and _uid_label(found) != job.metadata.uid:
            raise _NotOursError(_STILL_ENDING)
        pod = pod_seen(found)
        return ServerSeen(
            ready=pod.ready,
            endpoint=str(address),
            control_endpoint=str(Address(host=pod.ip, port=CONTROL_PORT)) if pod.ip else "",
            ca_bundle=ca_bundle,
            message=pod.message,
        )

    async def _make(self, wanted: JsonObject, job: SpesJob) -> JsonObject:
        """The object as it is there, made or changed if need be."""
        kind, metadata = wanted["kind"], wanted["metadata"]
        present = await find_object(self._api, kind, metadata["namespace"], metadata["name"])
        if present is not None:
            await self._check_owner(present, job)
            if says_the_same(wanted, present):
                return present
        return await self._api.apply(HUB_OWNER, wanted)

    async def _check_owner(self, present: JsonObject, job: SpesJob) -> None:
        """Object names are the job's: a namesake that was deleted may still hold them."""
        uid = _uid_label(present)
        if uid == job.metadata.uid:
            return
        kind, metadata = present["kind"], present["metadata"]
        if not uid:
            raise _NotOursError(
                f"{kind} {metadata['name']} exists and is not of SPES; remove it or rename the job"
            )
        if not metadata.get("deletionTimestamp"):
            await self._api.delete(kind, metadata["namespace"], metadata["name"])
        raise _NotOursError(_STILL_ENDING)


def _uid_label(obj: JsonObject) -> str:
    return str(obj["metadata"].get("labels", {}).get(LABEL_JOB_UID, ""))
