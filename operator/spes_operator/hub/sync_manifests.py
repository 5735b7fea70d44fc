"""The sync server of a job as Kubernetes objects, and what its pod says of itself. Pure.

Service, then its address, then a certificate with that name, then volume and StatefulSet. All but
the volume belong to the SpesJob and go with it; the volume goes too if the job says so.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from spes_api.job import SpesJob

from spes_operator.hub.sync_host import GRACE
from spes_operator.hub.sync_objects import labels
from spes_operator.k8s.api import JsonObject
from spes_operator.names import (
    ANNOTATION_CONTENT,
    CLIENT_CA_FILE,
    LABEL_COMPONENT,
    LABEL_JOB_UID,
    TLS_CERT_FILE,
    TLS_KEY_FILE,
    sync_client_ca_name,
    sync_server_name,
    sync_service_name,
    sync_tls_name,
    sync_volume_name,
)

PORT, CONTROL_PORT, METRICS_PORT = 7443, 7444, 7445
# How long a pod that is to go still serves: peers of a deleted job make their last pushes. What is
# left of its grace is for a commit.
LINGER_SECONDS = int(GRACE.total_seconds()) // 2
_COMPONENT = "sync"
_VOLUME, _TLS = "/sync", "/etc/spes/tls"
# Of the images' user; the volume is made writable for it.
_USER = 65532
_DIGEST = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """How peers outside the cluster reach the server."""

    service_type: Literal["NodePort", "LoadBalancer", "ClusterIP"]
    host: str = ""
    """NodePort: of the nodes; ClusterIP: the domain under which a proxy passes TLS through."""
    port: int = 0
    """ClusterIP: of the proxy."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """For the Service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSettings:
    """What the hub's admin says about the servers' pods."""

    requests: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    priority_class_name: str = ""
    image_pull_secret: str = ""
    has_issuer: bool = False
    """The certificate is an issuer's, which knows nothing of who may drive the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where peers reach a server."""

    host: str
    port: int

    def __str__(self) -> str:
        """As peers take it; an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def service(job: SpesJob, exposure: Exposure) -> JsonObject:
    """The Service before the server; only the peers' port leaves the cluster."""
    annotations = dict(exposure.annotations)
    return content_noted(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _metadata(job, sync_service_name(job.metadata.name))
            | {"annotations": annotations},
            "spec": {
                "type": exposure.service_type,
                "selector": _selector(job),
                "ports": [{"name": "sync", "port": PORT, "targetPort": PORT, "protocol": "TCP"}],
            },
        }
    )


def address_of(obj: JsonObject, job: SpesJob, exposure: Exposure) -> Address | None:
    """Where peers reach the Service, or None while the cluster has not given it an address."""
    if exposure.service_type == "ClusterIP":
        return Address(host=f"{job.metadata.uid[:8]}.{exposure.host}", port=exposure.port)
    if exposure.service_type == "NodePort":
        port = obj["spec"]["ports"][0].get("nodePort", 0)
        return Address(host=exposure.host, port=port) if port else None
    given = (obj.get("status", {}).get("loadBalancer", {}).get("ingress") or [{}])[0]
    host = given.get("hostname") or given.get("ip")
    return Address(host=host, port=PORT) if host else None


def volume_claim(job: SpesJob) -> JsonObject:
    """The server's volume: found again by this job alone, whatever its namesakes do."""
    storage = job.spec.checkpoint.storage
    metadata = _metadata(job, sync_volume_name(job.metadata.name, job.metadata.uid))
    if job.spec.checkpoint.reclaim == "Keep":
        del metadata["ownerReferences"]
    spec: JsonObject = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage.size}},
    }
    if storage.storage_class:
        spec["storageClassName"] = storage.storage_class
    return content_noted(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata,
            "spec": spec,
        }
    )


def stateful_set(job: SpesJob, pod: PodSettings) -> JsonObject:
    """One server, and never two: a StatefulSet replaces a pod only when it is gone.

    A change of its template reaches a pod when that is replaced for another reason.
    """
    name = job.metadata.name
    return content_noted(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": _metadata(job, sync_server_name(name)),
            "spec": {
                "replicas": 1,
                "serviceName": sync_service_name(name),
                "selector": {"matchLabels": _selector(job)},
                "updateStrategy": {"type": "OnDelete"},
                "template": {
                    "metadata": {"labels": labels(job) | _selector(job)},
                    "spec": _pod_spec(job, pod),
                },
            },
        }
    )


def _pod_spec(job: SpesJob, pod: PodSettings) -> JsonObject:
    spec: JsonObject = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": int(GRACE.total_seconds()),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(job, pod)],
        "volumes": [
            {
                "name": "volume",
                "persistentVolumeClaim": {
                    "claimName": sync_volume_name(job.metadata.name, job.metadata.uid)
                },
            },
            _tls_volume(job, has_issuer=pod.has_issuer),
        ],
    }
    if pod.node_selector:
        spec["nodeSelector"] = dict(pod.node_selector)
    if pod.priority_class_name:
        spec["priorityClassName"] = pod.priority_class_name
    if pod.image_pull_secret:
        spec["imagePullSecrets"] = [{"name": pod.image_pull_secret}]
    return spec


def _tls_volume(job: SpesJob, *, has_issuer: bool) -> JsonObject:
    """Certificate and key, and the authority of those who may drive the server: the hub's own."""
    name = job.metadata.name
    if not has_issuer:
        return {"name": "tls", "secret": {"secretName": sync_tls_name(name)}}
    certificate = [{"key": key, "path": key} for key in (TLS_CERT_FILE, TLS_KEY_FILE)]
    authority = [{"key": CLIENT_CA_FILE, "path": CLIENT_CA_FILE}]
    sources = [
        {"secret": {"name": sync_tls_name(name), "items": certificate}},
        {"secret": {"name": sync_client_ca_name(name), "items": authority}},
    ]
    return {"name": "tls", "projected": {"sources": sources}}


def _container(job: SpesJob, pod: PodSettings) -> JsonObject:
    return {
        "name": "sync",
        "image": job.status.images.sync,
        "command": [
            *("spes-sync", "serve", "--dir", _VOLUME, "--tls", _TLS),
            *("--address", "$(POD_IP)", "--port", str(PORT)),
            *("--control-port", str(CONTROL_PORT), "--metrics-port", str(METRICS_PORT)),
        ],
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "ports": [
            {"name": "sync", "containerPort": PORT},
            {"name": "control", "containerPort": CONTROL_PORT},
            {"name": "metrics", "containerPort": METRICS_PORT},
        ],
        "resources": {
            key: dict(value)
            for key, value in (("requests", pod.requests), ("limits", pod.limits))
            if value
        },
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 2},
        "lifecycle": {"preStop": {"sleep": {"seconds": LINGER_SECONDS}}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "volume", "mountPath": _VOLUME},
            {"name": "tls", "mountPath": _TLS, "readOnly": True},
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _metadata(job: SpesJob, name: str) -> JsonObject:
    return {
        "namespace": job.metadata.namespace,
        "name": name,
        "labels": labels(job) | {LABEL_COMPONENT: _COMPONENT},
        "ownerReferences": [owner_reference(job)],
    }


def owner_reference(job: SpesJob) -> JsonObject:
    """Kubernetes removes what carries it after the job, whose own removal waits for nothing."""
    return {
        "apiVersion": job.api_version,
        "kind": job.kind,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
    }


def _selector(job: SpesJob) -> dict[str, str]:
    return {LABEL_JOB_UID: job.metadata.uid, LABEL_COMPONENT: _COMPONENT}


def content_noted(obj: JsonObject) -> JsonObject:
    """With a hash of what is applied: an API server adds defaults, so they cannot be compared."""
    text = json.dumps(obj, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
    metadata = obj["metadata"]
    annotations = metadata.get("annotations", {}) | {ANNOTATION_CONTENT: digest}
    return {**obj, "metadata": {**metadata, "annotations": annotations}}


def says_the_same(wanted: JsonObject, present: JsonObject) -> bool:
    """The object there was applied from the same content."""
    there = present["metadata"].get("annotations", {})
    return bool(
        there.get(ANNOTATION_CONTENT) == wanted["metadata"]["annotations"][ANNOTATION_CONTENT]
    )
