"""A pod's status, from how its container is. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from kubelet.pod_spec import Json, Pod

HOST_IP = "127.0.0.1"
# Kubernetes' reasons of a container that ended.
_COMPLETED, _ERROR = "Completed", "Error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a container's process ended."""

    code: int
    started: datetime
    finished: datetime
    reason: str = ""
    """Empty: what the code says."""
    message: str = ""

    def to_json(self) -> Json:
        """As ContainerStateTerminated."""
        document = {
            "exitCode": self.code,
            "reason": self.reason or (_ERROR if self.code else _COMPLETED),
            "startedAt": timestamp(self.started),
            "finishedAt": timestamp(self.finished),
        }
        return document | ({"message": self.message} if self.message else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerState:
    """How the container is now: it waits, runs, or has ended for good."""

    reason: str = "ContainerCreating"
    """Why it waits."""
    message: str = ""
    running_since: datetime | None = None
    ready: bool = False
    last: Ended | None = None
    """The end of its latest process."""
    restarts: int = 0
    over: bool = False
    """No process runs, and none will be started."""

    def waits(self, reason: str, message: str = "") -> ContainerState:
        """The same container, waiting."""
        return replace(self, reason=reason, message=message, running_since=None, ready=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What the pod as a whole suffers."""

    reason: str = ""
    message: str = ""
    disruption: str = ""
    """Reason of the condition DisruptionTarget; empty: none."""
    failed: bool = False
    """The pod counts as failed whatever its container says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """How a pod is."""

    ip: str
    container: ContainerState = ContainerState()
    fate: Fate = Fate()


def pod_status(pod: Pod, state: PodState, *, now: datetime, before: Json) -> Json:
    """The status to write.

    Args:
        pod: The pod.
        state: How it is.
        now: Time of conditions that change.
        before: The status that was written last; conditions that stay as they are keep their time.
    """
    container, fate = state.container, state.fate
    phase = _phase(container, fate)
    ready = container.ready and container.running_since is not None
    conditions = {
        "PodScheduled": (True, ""),
        "Initialized": (True, "PodCompleted" if phase == "Succeeded" else ""),
        "ContainersReady": (ready, "" if ready else "ContainersNotReady"),
        "Ready": (ready, "" if ready else "ContainersNotReady"),
    }
    if fate.disruption:
        conditions["DisruptionTarget"] = (True, fate.disruption)
    status = {
        "phase": phase,
        "hostIP": HOST_IP,
        "podIP": state.ip,
        "podIPs": [{"ip": state.ip}],
        "conditions": [
            _condition(kind, *wanted, now=now, before=before) for kind, wanted in conditions.items()
        ],
        "containerStatuses": [_container_status(pod, container)],
        "startTime": before.get("startTime") or timestamp(now),
    }
    if fate.reason:
        status |= {"reason": fate.reason, "message": fate.message}
    return status


def timestamp(moment: datetime) -> str:
    """A moment as Kubernetes writes it."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _phase(
    state: ContainerState, fate: Fate
) -> Literal["Pending", "Running", "Succeeded", "Failed"]:
    if state.over:
        good = state.last is not None and state.last.code == 0
        return "Succeeded" if good and not fate.failed else "Failed"
    started = state.running_since is not None or state.last is not None
    return "Running" if started else "Pending"


def _container_status(pod: Pod, state: ContainerState) -> Json:
    running = state.running_since
    document: Json = {
        "name": pod.container.name,
        "image": pod.container.image,
        "imageID": pod.container.image,
        "containerID": f"process://{pod.uid}/{state.restarts}" if running or state.last else "",
        "ready": state.ready and running is not None,
        "started": running is not None,
        "restartCount": state.restarts,
    }
    if running is not None:
        document["state"] = {"running": {"startedAt": timestamp(running)}}
    elif state.over and state.last is not None:
        return document | {"state": {"terminated": state.last.to_json()}}
    else:
        document["state"] = {"waiting": {"reason": state.reason, "message": state.message}}
    if state.last is not None:
        document["lastState"] = {"terminated": state.last.to_json()}
    return document


def _condition(kind: str, holds: bool, reason: str, *, now: datetime, before: Json) -> Json:
    status = "True" if holds else "False"
    old = next((one for one in before.get("conditions", ()) if one["type"] == kind), None)
    same = old is not None and old["status"] == status
    since = old["lastTransitionTime"] if same and old else timestamp(now)
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": since}
