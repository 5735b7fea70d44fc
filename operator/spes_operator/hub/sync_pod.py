"""What a sync server's pod says of itself: ready, where, or why not. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spes_operator.k8s.api import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSeen:
    """The pod of a sync server."""

    ready: bool = False
    ip: str = ""
    """Empty: it has no network yet."""
    message: str = ""
    """Why it is not ready."""


def pod_seen(pod: JsonObject | None) -> PodSeen:
    """What matters of the pod; None: there is none."""
    if pod is None:
        return PodSeen(message="the sync server's pod is not made yet")
    status = pod.get("status", {})
    if pod["metadata"].get("deletionTimestamp"):
        return PodSeen(ip=status.get("podIP", ""), message="the sync server's pod is ending")
    conditions = {item["type"]: item for item in status.get("conditions", ())}
    if conditions.get("Ready", {}).get("status") == "True":
        return PodSeen(ready=True, ip=status.get("podIP", ""))
    return PodSeen(ip=status.get("podIP", ""), message=next(_obstacles(status, conditions)))


def _obstacles(status: JsonObject, conditions: dict[str, JsonObject]) -> Iterator[str]:
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        yield f"the sync server's pod finds no node: {scheduled.get('message', '')}"
    for container in status.get("containerStatuses", ()):
        waiting = container.get("state", {}).get("waiting", {})
        ended = container.get("lastState", {}).get("terminated") or container.get("state", {}).get(
            "terminated"
        )
        if ended:
            said = " ".join(str(ended.get("message", "")).split())
            yield f"the sync server ended with {ended.get('exitCode')}: {said[-300:]}"
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            yield f"the sync server's pod waits: {waiting['reason']} {waiting.get('message', '')}"
    yield "the sync server is starting"
