"""A pod's spec as far as it is played here, out of the API server's JSON. Pure.

One container per pod. What cannot be played is refused, never ignored, except what only an image or
a kernel could give: the image itself, security contexts and limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Any, Literal, TypeAlias

from kubelet.errors import UnsupportedPodError

Json: TypeAlias = dict[str, Any]
ProbeKind: TypeAlias = Literal["exec", "tcpSocket", "httpGet"]

# Kubernetes' default; the API server fills it in, so this only serves specs made by hand.
_GRACE_SECONDS = 30
_PROBE_KINDS: tuple[ProbeKind, ...] = ("exec", "tcpSocket", "httpGet")
# The ServiceAccount's token, mounted into every pod that does not refuse it.
_TOKEN_VOLUME = "kube-api-access-"  # noqa: S105 - a name, not a secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """When a container counts as ready or alive."""

    kind: ProbeKind
    action: Json
    initial_delay: timedelta
    period: timedelta
    timeout: timedelta
    successes: int
    """In a row, until the answer turns to yes."""
    failures: int
    """In a row, until it turns to no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """Where a container sees a volume."""

    path: PurePosixPath
    volume: str
    sub_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What runs in the pod."""

    name: str
    image: str
    command: tuple[str, ...]
    working_directory: str
    env: tuple[Json, ...]
    env_from: tuple[Json, ...]
    mounts: tuple[Mount, ...]
    ports: Mapping[str, int]
    readiness: Probe | None
    liveness: Probe | None
    linger: timedelta
    """How long it goes on before it is asked to end: its hook `preStop`."""
    log_tells_why: bool
    """The end of its log is its message when it fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod that is bound to a node."""

    namespace: str
    name: str
    uid: str
    node: str
    grace: timedelta
    restart: Literal["Always", "OnFailure", "Never"]
    volumes: Mapping[str, Json]
    container: Container
    raw: Json
    """As the API server has it."""


def read_pod(raw: Json) -> Pod:
    """The pod.

    Raises:
        UnsupportedPodError: It cannot be played.
    """
    spec, metadata = raw["spec"], raw["metadata"]
    if len(spec["containers"]) != 1 or spec.get("initContainers"):
        raise UnsupportedPodError("expected exactly one container and no init containers")
    return Pod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        node=spec.get("nodeName", ""),
        grace=timedelta(seconds=spec.get("terminationGracePeriodSeconds", _GRACE_SECONDS)),
        restart=spec.get("restartPolicy", "Always"),
        volumes={
            volume["name"]: volume
            for volume in spec.get("volumes", ())
            if not volume["name"].startswith(_TOKEN_VOLUME)
        },
        container=_container(spec["containers"][0]),
        raw=raw,
    )


def _container(raw: Json) -> Container:
    if not raw.get("command"):
        raise UnsupportedPodError("the container has no command, and there are no images here")
    if raw.get("startupProbe"):
        raise UnsupportedPodError("startupProbe is not played here")
    return Container(
        name=raw["name"],
        image=raw.get("image", ""),
        command=(*raw["command"], *raw.get("args", ())),
        working_directory=raw.get("workingDir", ""),
        env=tuple(raw.get("env", ())),
        env_from=tuple(raw.get("envFrom", ())),
        mounts=_mounts(raw),
        ports={
            port["name"]: port["containerPort"] for port in raw.get("ports", ()) if "name" in port
        },
        readiness=_probe(raw.get("readinessProbe")),
        liveness=_probe(raw.get("livenessProbe")),
        linger=_linger(raw.get("lifecycle") or {}),
        log_tells_why=raw.get("terminationMessagePolicy") == "FallbackToLogsOnError",
    )


def _mounts(raw: Json) -> tuple[Mount, ...]:
    """Outer ones first, so that one may lie inside another."""
    mounts = [
        Mount(
            path=PurePosixPath(mount["mountPath"]),
            volume=mount["name"],
            sub_path=mount.get("subPath", ""),
        )
        for mount in raw.get("volumeMounts", ())
        if not mount["name"].startswith(_TOKEN_VOLUME)
    ]
    return tuple(sorted(mounts, key=lambda mount: len(mount.path.parts)))


def _linger(lifecycle: Json) -> timedelta:
    before_stop = lifecycle.get("preStop", {"sleep": {"seconds": 0}})
    if lifecycle.keys() - {"preStop"} or "sleep" not in before_stop:
        raise UnsupportedPodError("of all hooks only a preStop that sleeps is played here")
    return timedelta(seconds=before_stop["sleep"]["seconds"])


def _probe(raw: Json | None) -> Probe | None:
    if raw is None:
        return None
    kind = next((kind for kind in _PROBE_KINDS if kind in raw), None)
    if kind is None:
        raise UnsupportedPodError(f"a probe is none of {', '.join(_PROBE_KINDS)}")
    return Probe(
        kind=kind,
        action=raw[kind],
        initial_delay=timedelta(seconds=raw.get("initialDelaySeconds", 0)),
        period=timedelta(seconds=raw.get("periodSeconds", 10)),
        timeout=timedelta(seconds=raw.get("timeoutSeconds", 1)),
        successes=raw.get("successThreshold", 1),
        failures=raw.get("failureThreshold", 3),
    )
