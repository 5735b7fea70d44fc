"""Sync servers as StatefulSets of the hub's cluster: SyncHost over an API server.

What is missing is made in the one order in which every prefix is safe: Service, its address,
certificate, volume, StatefulSet. When all is there, only the pod is asked for, for a while: whoever
waits for a server looks often. What the objects say is in `sync_manifests`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from spes_api.job import SpesJob

from spes_operator.clock import Clock
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

# What was found complete is looked at as a whole again after this.
_COMPLETE_FOR = timedelta(seconds=30)
_STILL_ENDING = "the sync server of a deleted job of this name is still ending"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """What the hub's admin decides about sync servers."""

    exposure: Exposure
    pod: PodSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class _Complete:
    """Everything that a server needs was there."""

    generation: int
    """Of the job."""
    address: Address
    ca_bundle: str
    at: float


class _NotOursError(Exception):
    """An object of a name that is needed belongs to a deleted job, or to somebody else."""


class ClusterSyncHost:
    """SyncHost over StatefulSets."""

    # A cluster removes them itself, and its pods are asked for while a server is away.
    watched: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()

    def __init__(
        self,
        api: KubeApi,
        certificates: ServerCertificates,
        settings: ClusterSettings,
        clock: Clock,
    ) -> None:
        """Nothing is read or written yet."""
        self._api = api
        self._certificates = certificates
        self._settings = settings
        self._clock = clock
        self._complete: dict[str, _Complete] = {}

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
        self._forget_old()
        known, pod = self._complete.get(job.metadata.uid), await self._pod(job)
        if known is not None and known.generation == job.metadata.generation and pod is not None:
            return _server_seen(pod, job, known)
        exposure = self._settings.exposure
        address = address_of(await self._make(service(job, exposure), job), job, exposure)
        if address is None:
            return ServerSeen(message="the sync server's Service has no address yet")
        ca_bundle = await self._certificates.keep(job, address.host)
        if ca_bundle is None:
            return ServerSeen(message="the sync server's certificate is not issued yet")
        await self._make(volume_claim(job), job)
        await self._make(stateful_set(job, self._settings.pod), job)
        complete = self._complete[job.metadata.uid] = _Complete(
            generation=job.metadata.generation,
            address=address,
            ca_bundle=ca_bundle,
            at=self._clock.monotonic(),
        )
        return _server_seen(pod, job, complete)

    def _forget_old(self) -> None:
        oldest = self._clock.monotonic() - _COMPLETE_FOR.total_seconds()
        self._complete = {uid: one for uid, one in self._complete.items() if one.at > oldest}

    async def _pod(self, job: SpesJob) -> JsonObject | None:
        """The pod of that name, be it a namesake's."""
        metadata = job.metadata
        return await find_object(self._api, "Pod", metadata.namespace, sync_pod_name(metadata.name))

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


def _server_seen(found: JsonObject | None, job: SpesJob, complete: _Complete) -> ServerSeen:
    if found is not None and _uid_label(found) != job.metadata.uid:
        raise _NotOursError(_STILL_ENDING)
    pod = pod_seen(found)
    return ServerSeen(
        ready=pod.ready,
        endpoint=str(complete.address),
        control_endpoint=str(Address(host=pod.ip, port=CONTROL_PORT)) if pod.ip else "",
        ca_bundle=complete.ca_bundle,
        message=pod.message,
    )


def _uid_label(obj: JsonObject) -> str:
    return str(obj["metadata"].get("labels", {}).get(LABEL_JOB_UID, ""))
