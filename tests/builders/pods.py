"""Small pods, Jobs and StatefulSets for the stand-in kubelet."""

import json
from typing import Any

from builders.control_plane import ControlPlane
from spes_operator.k8s.api import JsonObject


def pod_spec(*command: str, container: dict[str, Any] | None = None, **spec: Any) -> JsonObject:
    """A pod's spec with one container; `container` and the rest change what they name."""
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 20,
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": "main",
                "image": "busybox",
                "command": list(command),
                **(container or {}),
            }
        ],
        **spec,
    }


def pod(namespace: str, name: str, spec: JsonObject, **metadata: Any) -> JsonObject:
    """A pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": spec,
    }


def job(namespace: str, name: str, template: JsonObject, **spec: Any) -> JsonObject:
    """A Job that replaces pods that were disrupted or interrupted, and fails at anything else."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
                    {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [75]}},
                ]
            },
            "template": {"spec": template},
            **spec,
        },
    }


def stateful_set(namespace: str, name: str, template: JsonObject, claim: str) -> JsonObject:
    """A StatefulSet of one pod with the volume `claim` at /data."""
    labels = {"app": name}
    template["restartPolicy"] = "Always"
    template["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    template["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "serviceName": name,
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template},
        },
    }


def claim(namespace: str, name: str) -> JsonObject:
    """A volume claim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def evict(plane: ControlPlane, namespace: str, name: str) -> None:
    """Evict a pod as `kubectl drain` does."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
    plane.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))


def exit_code(obj: JsonObject) -> int | None:
    """Of a pod's container that ended; None while it has not."""
    for status in (obj.get("status") or {}).get("containerStatuses") or ():
        if "terminated" in status["state"]:
            return int(status["state"]["terminated"]["exitCode"])
    return None


def phase(obj: JsonObject) -> str:
    """A pod's phase."""
    return str((obj.get("status") or {}).get("phase", ""))
