"""The sync servers' certificates as Secrets: signed by the hub's CA, or by a cert-manager issuer.

Renewed at two thirds of their life; a server reads its files again by itself.
"""

from __future__ import annotations

import base64
import ipaddress
from dataclasses import dataclass
from typing import Protocol

from spes_api.job import SpesJob

from spes_operator.clock import Clock
from spes_operator.hub.pki import Pki
from spes_operator.hub.sync_manifests import content_noted, owner_reference, says_the_same
from spes_operator.hub.sync_objects import secret
from spes_operator.k8s.api import JsonObject, KubeApi
from spes_operator.k8s.typed import find_object
from spes_operator.names import (
    CA_FILE,
    CLIENT_CA_FILE,
    HUB_OWNER,
    LABEL_JOB_UID,
    TLS_CERT_FILE,
    ObjectKey,
    sync_client_ca_name,
    sync_tls_name,
)

# Every server's certificate has this name too: the hub reaches servers by the address of their pod.
CONTROL_NAME = "spes-sync"


class ServerCertificates(Protocol):
    """Whoever certifies sync servers."""

    async def keep(self, job: SpesJob, host: str) -> str | None:
        """Make the job's server have a certificate for `host`.

        Returns:
            PEM of the CA by which peers recognise it; None while there is no certificate yet.
        """


class OwnCertificates:
    """Signed by the hub itself."""

    def __init__(self, api: KubeApi, pki: Pki, clock: Clock) -> None:
        """Nothing is read yet."""
        self._api = api
        self._pki = pki
        self._clock = clock

    async def keep(self, job: SpesJob, host: str) -> str | None:
        """Write the Secret if it is absent, of another host or CA, or to be renewed."""
        names = (CONTROL_NAME, host)
        key = ObjectKey(job.metadata.namespace, sync_tls_name(job.metadata.name))
        present = await find_object(self._api, "Secret", *key)
        if present is not None and _is_of(present, job):
            certificate = _decoded(present, TLS_CERT_FILE)
            if self._pki.still_serves(certificate, names, now=self._clock.now()):
                return self._pki.ca_pem
        wanted = owned_secret(job, key.name, self._pki.server_files(names))
        await _put(self._api, wanted, present)
        return self._pki.ca_pem


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerRef:
    """A cert-manager issuer."""

    name: str
    kind: str
    group: str


class IssuedCertificates:
    """Signed by a cert-manager issuer, which writes and renews the Secret by itself."""

    def __init__(self, api: KubeApi, pki: Pki, issuer: IssuerRef) -> None:
        """`pki`: who may drive the servers is the hub's own word in any case."""
        self._api = api
        self._pki = pki
        self._issuer = issuer

    async def keep(self, job: SpesJob, host: str) -> str | None:
        """Ask for the certificate; the Secret appears when it is issued."""
        await self._keep_client_ca(job)
        await self._ask(certificate_request(job, host, self._issuer))
        key = ObjectKey(job.metadata.namespace, sync_tls_name(job.metadata.name))
        issued = await find_object(self._api, "Secret", *key)
        if issued is None or not _decoded(issued, TLS_CERT_FILE):
            return None
        return _decoded(issued, CA_FILE).decode() or None

    async def _ask(self, wanted: JsonObject) -> None:
        key = ObjectKey(wanted["metadata"]["namespace"], wanted["metadata"]["name"])
        present = await find_object(self._api, wanted["kind"], *key)
        if present is None or not says_the_same(wanted, present):
            await self._api.apply(HUB_OWNER, wanted)

    async def _keep_client_ca(self, job: SpesJob) -> None:
        key = ObjectKey(job.metadata.namespace, sync_client_ca_name(job.metadata.name))
        wanted = owned_secret(job, key.name, {CLIENT_CA_FILE: self._pki.client_ca})
        present = await find_object(self._api, "Secret", *key)
        if present is None or not _is_of(present, job) or present["data"] != wanted["data"]:
            await _put(self._api, wanted, present)


def owned_secret(job: SpesJob, name: str, files: dict[str, bytes]) -> JsonObject:
    """A Secret that goes with the job."""
    made = secret(job, name, files)
    made["metadata"]["ownerReferences"] = [owner_reference(job)]
    return made


def certificate_request(job: SpesJob, host: str, issuer: IssuerRef) -> JsonObject:
    """The Certificate by which cert-manager is asked."""
    name = sync_tls_name(job.metadata.name)
    metadata = owned_secret(job, name, {})["metadata"]
    spec: JsonObject = {
        "secretName": name,
        "secretTemplate": {"labels": metadata["labels"]},
        "commonName": CONTROL_NAME,
        "dnsNames": [CONTROL_NAME],
        "usages": ["server auth"],
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
        "issuerRef": {"name": issuer.name, "kind": issuer.kind, "group": issuer.group},
    }
    if _is_address(host):
        spec["ipAddresses"] = [host]
    else:
        spec["dnsNames"].append(host)
    return content_noted(
        {
            "apiVersion": "cert-manager.io/v1",
            "kind": "Certificate",
            "metadata": metadata,
            "spec": spec,
        }
    )


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_of(obj: JsonObject, job: SpesJob) -> bool:
    """A deleted namesake's is written anew."""
    return bool(obj["metadata"].get("labels", {}).get(LABEL_JOB_UID) == job.metadata.uid)


def _decoded(obj: JsonObject, file: str) -> bytes:
    return base64.b64decode(obj.get("data", {}).get(file, ""))


async def _put(api: KubeApi, wanted: JsonObject, present: JsonObject | None) -> None:
    """Only in the place of what was read: two hubs must not write in turns."""
    if present is None:
        await api.create(HUB_OWNER, wanted)
        return
    version = present["metadata"]["resourceVersion"]
    metadata = wanted["metadata"] | {"resourceVersion": version}
    await api.replace(HUB_OWNER, wanted | {"metadata": metadata})
