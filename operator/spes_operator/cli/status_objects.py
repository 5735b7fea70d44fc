"""Reads from the hub what `spes status` shows. I/O only.

Jobs must be readable; what else the caller has no right to read is left out and said in a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spes_operator.cli.cluster import find
from spes_operator.errors import ConfigError, ForbiddenError, NotFoundError, UnauthorizedError
from spes_operator.k8s.api import JsonObject, KubeApi
from spes_operator.names import LABEL_JOB_UID, ObjectKey

_NO_SPES = "this cluster knows no SPES; is it the hub (--kubeconfig, --context)?"


@dataclass(slots=True, kw_only=True)
class Objects:
    """What was read, as the API server has it."""

    jobs: list[JsonObject] = field(default_factory=list)
    members: list[JsonObject] = field(default_factory=list)
    assignments: list[JsonObject] = field(default_factory=list)
    events: list[JsonObject] = field(default_factory=list)
    volumes: list[JsonObject] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


async def read_all(api: KubeApi, namespace: str) -> Objects:
    """Every job of a namespace (empty: of all) and every member."""
    found = Objects(jobs=await _jobs(api, namespace))
    found.members = await _readable(api, found, "MemberCluster")
    return found


async def read_job(api: KubeApi, job: ObjectKey) -> Objects:
    """One job, and all that tells how it is.

    Raises:
        ConfigError: There is no such job.
    """
    obj = await find(api, "SpesJob", *job)
    found = Objects(jobs=[obj])
    labels = {LABEL_JOB_UID: obj["metadata"]["uid"]}
    found.members = await _readable(api, found, "MemberCluster")
    found.assignments = await _readable(api, found, "TrainerAssignment", labels=labels)
    found.events = await _readable(api, found, "Event", job.namespace)
    return found


async def read_deleted(api: KubeApi, namespace: str) -> Objects:
    """What may be left of deleted jobs, and the jobs that are not deleted."""
    found, labels = Objects(jobs=await _jobs(api, "")), {LABEL_JOB_UID: None}
    found.members = await _readable(api, found, "MemberCluster")
    found.assignments = await _readable(api, found, "TrainerAssignment", labels=labels)
    found.volumes = await _readable(api, found, "PersistentVolumeClaim", namespace, labels=labels)
    return found


async def _jobs(api: KubeApi, namespace: str) -> list[JsonObject]:
    try:
        return (await api.list("SpesJob", namespace)).items
    except NotFoundError as error:
        raise ConfigError(_NO_SPES) from error
    except UnauthorizedError:
        raise
    except ForbiddenError as error:
        if namespace:
            raise
        raise ForbiddenError(f"{error}\nto see the jobs of one namespace alone: -n NS") from error


async def _readable(
    api: KubeApi,
    found: Objects,
    kind: str,
    namespace: str = "",
    *,
    labels: Mapping[str, str | None] | None = None,
) -> list[JsonObject]:
    """Objects of a kind; a note where the caller may not read them."""
    try:
        return (await api.list(kind, namespace, labels)).items
    except ForbiddenError as error:
        where = f"in namespace {namespace}" if namespace else "in all namespaces"
        found.notes.append(
            f"{kind} is left out, your account may not list it {where}; the hub's admin may: "
            f"use another --kubeconfig or --context ({error})"
        )
        return []
