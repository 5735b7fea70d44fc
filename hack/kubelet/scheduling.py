"""Which node a pod goes to: selector, taints, and room. Pure; no affinity, no preemption."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal

from kubernetes.utils.quantity import parse_quantity

from kubelet.pod_spec import Json

_REPELS = ("NoSchedule", "NoExecute")
_OVER = ("Succeeded", "Failed")


def choose_node(pod: Json, nodes: Iterable[Json], pods: Iterable[Json]) -> tuple[str, str]:
    """The name of the node with the fewest pods that fits, or "" and why none does."""
    placed = [other for other in pods if other["spec"].get("nodeName")]
    load = Counter(other["spec"]["nodeName"] for other in placed)
    reasons: Counter[str] = Counter()
    fitting = []
    for node in nodes:
        name = node["metadata"]["name"]
        here = [other for other in placed if other["spec"]["nodeName"] == name]
        if reason := _obstacle(pod, node, here):
            reasons[reason] += 1
        else:
            fitting.append(name)
    if fitting:
        return min(fitting, key=lambda name: (load[name], name)), ""
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return "", f"0/{reasons.total()} nodes are available: {told or 'there are none'}."


def _obstacle(pod: Json, node: Json, here: Iterable[Json]) -> str:
    """Why the pod cannot go to the node; "" if it can."""
    if node["spec"].get("unschedulable"):
        return "node(s) were unschedulable"
    for taint in node["spec"].get("taints", ()):
        if taint["effect"] in _REPELS and not _tolerates(pod, taint):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    labels = node["metadata"].get("labels") or {}
    if not (pod["spec"].get("nodeSelector") or {}).items() <= labels.items():
        return "node(s) didn't match Pod's node affinity/selector"
    free = _free(node, here)
    for resource, wanted in _requests(pod).items():
        if wanted > free.get(resource, Decimal(0)):
            return f"Insufficient {resource}"
    return ""


def _tolerates(pod: Json, taint: Json) -> bool:
    for toleration in pod["spec"].get("tolerations", ()):
        same_key = toleration.get("key", taint["key"]) == taint["key"]
        same_effect = toleration.get("effect", taint["effect"]) == taint["effect"]
        exists = toleration.get("operator") == "Exists"
        same_value = exists or toleration.get("value", "") == taint.get("value", "")
        if same_key and same_effect and same_value:
            return True
    return False


def _free(node: Json, here: Iterable[Json]) -> dict[str, Decimal]:
    free = _quantities(node.get("status", {}).get("allocatable") or {})
    for other in here:
        if other.get("status", {}).get("phase") not in _OVER:
            for resource, used in _requests(other).items():
                free[resource] = free.get(resource, Decimal(0)) - used
    return free


def _requests(pod: Json) -> dict[str, Decimal]:
    total = {"pods": Decimal(1)}
    for container in pod["spec"]["containers"]:
        requests = container.get("resources", {}).get("requests") or {}
        for resource, amount in _quantities(requests).items():
            total[resource] = total.get(resource, Decimal(0)) + amount
    return total


def _quantities(amounts: Mapping[str, str]) -> dict[str, Decimal]:
    return {
        name: parse_quantity(amount)  # type: ignore[no-untyped-call]  # the client's own gap
        for name, amount in amounts.items()
    }
