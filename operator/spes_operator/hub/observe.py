"""Reads everything that a pass of the hub looks at. I/O only; decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from spes_api.job import SpesJob
from spes_api.kinds import TrainerAssignment

from spes_operator.errors import ForbiddenError, NotFoundError
from spes_operator.hub.join_tokens import token_hash
from spes_operator.hub.ownership import Ownership
from spes_operator.hub.roster import Roster
from spes_operator.hub.sync_state import SyncPlan, SyncState, TokenHash
from spes_operator.hub.view import HubView, MemberSeen, ServerSeen
from spes_operator.k8s.api import KubeApi
from spes_operator.k8s.typed import read_models
from spes_operator.names import (
    LABEL_JOB_UID,
    ObjectKey,
    PeerId,
    join_secret_name,
    member_namespace,
    ownership_name,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What the hub process itself knows of a job."""

    server: ServerSeen
    sync: SyncState | None
    applied: SyncPlan | None
    asked: Mapping[PeerId, timedelta]
    refused: str
    closed: frozenset[str]
    """Namespaces of members that were closed in the last pass."""
    hub_age: timedelta
    startable_for: timedelta | None


async def observe_job(
    api: KubeApi, job: SpesJob, roster: Roster, known: Remembered, *, now: float
) -> HubView:
    """The view of one job."""
    labels = {LABEL_JOB_UID: job.metadata.uid}
    assignments, unreadable = await read_models(api, TrainerAssignment, "", labels)
    members = await roster.observe(now=now)
    secrets, closed = await _join_secrets(api, members, labels)
    return HubView(
        job=job,
        ownership=await read_ownership(api, job),
        members=tuple(
            replace(member, is_closed=member_namespace(member.name) in closed) for member in members
        ),
        assignments=tuple(assignments),
        unreadable=unreadable,
        server=known.server,
        sync=known.sync,
        applied=known.applied,
        asked=known.asked,
        refused=known.refused,
        closed_before=known.closed,
        join_secrets=secrets,
        hub_age=known.hub_age,
        startable_for=known.startable_for,
    )


async def read_ownership(api: KubeApi, job: SpesJob) -> Ownership | None:
    """The stored ownership, or None before the first placement.

    Raises:
        ConfigError: Its ConfigMap was changed by somebody else.
    """
    name = ownership_name(job.metadata.name)
    try:
        found = await api.get("ConfigMap", job.metadata.namespace, name)
    except NotFoundError:
        return None
    if found["metadata"].get("labels", {}).get(LABEL_JOB_UID) != job.metadata.uid:
        return None  # of a deleted job of that name; it is removed with that job's other leftovers
    return Ownership.from_config_map(found)


async def _join_secrets(
    api: KubeApi, members: Iterable[MemberSeen], labels: Mapping[str, str]
) -> tuple[dict[ObjectKey, TokenHash], set[str]]:
    """Those of accepted members; beside them the namespaces into which the hub may not look."""
    suffix = join_secret_name("")
    found: dict[ObjectKey, TokenHash] = {}
    closed: set[str] = set()
    for namespace in (member_namespace(m.name) for m in members if m.cluster.spec.accepted):
        try:
            secrets = (await api.list("Secret", namespace, labels)).items
        except ForbiddenError:
            closed.add(namespace)
            continue
        for secret in secrets:
            key = ObjectKey(namespace, secret["metadata"]["name"])
            if key.name.endswith(suffix) and (token := token_hash(secret)):
                found[key] = token
    return found, closed
