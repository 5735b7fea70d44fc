"""The pod of a trainer: one container without rights, its volumes and its probe. Pure.

Fits the "restricted" pod security standard, unless the member's admin lends a dataset by hostPath.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

from spes_operator.k8s.api import JsonObject
from spes_operator.k8s.workloads import FileProbe, LocalJob, WorkloadPaths

CONTAINER = "trainer"
# Where a trainer finds its files.
POD_PATHS = WorkloadPaths(
    work=PurePosixPath("/work"),
    secrets=PurePosixPath("/etc/spes/join"),
    data=PurePosixPath("/data"),
)
_WORK = "work"
_SCRATCH = "scratch"
_SCRATCH_PATH = "/tmp"  # noqa: S108 - the pod's own, empty folder
# Processes of one trainer, and NCCL between them, share memory in files there; a container's own
# is 64 MiB, too small.
_SHARED_MEMORY = "shared-memory"
_SHARED_MEMORY_PATH = "/dev/shm"  # noqa: S108 - the pod's own
# Any that is not root: what runs in the pod owns its volumes by it.
_USER = 65532
# A Secret's files: its owner and its group read them.
_SECRET_MODE = 0o440
_PROBE_PERIOD_SECONDS = 10
# Python with a few modules starts in well under a second, but a busy node may take long.
_PROBE_TIMEOUT_SECONDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkVolume:
    """What holds a trainer's checkpoints."""

    kind: Literal["pvc", "emptyDir"] = "emptyDir"
    """With emptyDir a replaced pod begins with fresh optimizer moments."""
    size: str = "50Gi"
    storage_class: str = ""
    """Empty: the cluster's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSettings:
    """What the member's admin decides about every trainer's pod."""

    namespace: str
    image: str
    """For jobs that name none."""
    work_volume: WorkVolume = WorkVolume()
    datasets: Mapping[str, JsonObject] = field(default_factory=dict)
    """Name -> volume source of Kubernetes."""
    tolerations: Sequence[JsonObject] = ()
    image_pull_secrets: Sequence[str] = ()
    runtime_class: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


def work_claim_name(assignment: str) -> str:
    """PersistentVolumeClaim of an assignment: it outlives the pods of one trainer."""
    return f"{assignment}-work"


def work_claim(job: LocalJob, settings: PodSettings, labels: Mapping[str, str]) -> JsonObject:
    """The claim that `pod_spec` refers to."""
    volume = settings.work_volume
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "namespace": settings.namespace,
            "name": work_claim_name(job.assignment),
            "labels": dict(labels),
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": volume.size}},
            **({"storageClassName": volume.storage_class} if volume.storage_class else {}),
        },
    }


def pod_spec(job: LocalJob, settings: PodSettings) -> JsonObject:
    """The spec of the Job's pod."""
    pod = job.pod
    optional = {
        "priorityClassName": pod.priority_class,
        "runtimeClassName": settings.runtime_class,
        "nodeSelector": dict(pod.node_selector),
        "tolerations": list(settings.tolerations),
        "imagePullSecrets": [{"name": name} for name in settings.image_pull_secrets],
    }
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": int(job.grace.total_seconds()),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(job, settings)],
        "volumes": [volume for volume, _ in _volumes(job, settings)],
        **{key: value for key, value in optional.items() if value},
    }


def _container(job: LocalJob, settings: PodSettings) -> JsonObject:
    env = {"HOME": _SCRATCH_PATH, **settings.env, **job.env}  # caches of libraries go there
    optional = {
        "resources": {"limits": dict(job.pod.resources)} if job.pod.resources else {},
        "readinessProbe": _readiness(job.ready_probe) if job.ready_probe else {},
    }
    return {
        "name": CONTAINER,
        "image": job.pod.image or settings.image,
        "command": list(job.command),
        "env": [{"name": key, "value": value} for key, value in sorted(env.items())],
        "volumeMounts": [mount for _, mount in _volumes(job, settings)],
        # The last lines of the log say why it failed, where the agent can read them.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        **{key: value for key, value in optional.items() if value},
    }


def _readiness(probe: FileProbe) -> JsonObject:
    """The trainer itself tells whether its file is fresh: an image need have no shell."""
    return {
        "exec": {"command": ["spes-trainer", "ready", "--dir", str(probe.path.parent)]},
        "periodSeconds": _PROBE_PERIOD_SECONDS,
        "timeoutSeconds": _PROBE_TIMEOUT_SECONDS,
        "failureThreshold": 1,
    }


def _volumes(job: LocalJob, settings: PodSettings) -> Iterator[tuple[JsonObject, JsonObject]]:
    """Each volume with its mount."""
    if settings.work_volume.kind == "pvc":
        work = {"persistentVolumeClaim": {"claimName": work_claim_name(job.assignment)}}
    else:
        work = {"emptyDir": {}}
    yield _mounted(_WORK, work, str(POD_PATHS.work))
    for mount in job.secret_mounts:
        source = {"secret": {"secretName": mount.secret, "defaultMode": _SECRET_MODE}}
        yield _mounted(mount.secret, source, str(mount.directory), read_only=True)
    for name in job.pod.datasets:
        path = str(POD_PATHS.data / name)
        yield _mounted(f"data-{name}", settings.datasets[name], path, read_only=True)
    yield _mounted(_SCRATCH, {"emptyDir": {}}, _SCRATCH_PATH)
    yield _mounted(_SHARED_MEMORY, {"emptyDir": {"medium": "Memory"}}, _SHARED_MEMORY_PATH)


def _mounted(
    name: str, source: JsonObject, path: str, *, read_only: bool = False
) -> tuple[JsonObject, JsonObject]:
    mount = {"name": name, "mountPath": path} | ({"readOnly": True} if read_only else {})
    return {"name": name, **source}, mount
