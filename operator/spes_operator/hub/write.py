"""Carries out a HubPlan, in the one order in which every prefix is safe. I/O only; decides nothing.

A conflict over ownership or an absent server ends the pass: the next one reads again and decides
again. What one member's namespace refuses holds nothing up elsewhere.
"""

from __future__ import annotations

from spes_api.job import SpesJobStatus
from spes_api.kinds import TrainerAssignment

from spes_operator.clock import Clock
from spes_operator.errors import SpesError
from spes_operator.hub.join_tokens import mint
from spes_operator.hub.ownership import Ownership
from spes_operator.hub.sync_control import SyncControl
from spes_operator.hub.view import HubPlan, HubView
from spes_operator.isolation import Isolation
from spes_operator.k8s.api import JsonObject, KubeApi
from spes_operator.k8s.events import post
from spes_operator.names import HUB_OWNER, ObjectKey


async def write_plan(
    api: KubeApi, seen: HubView, plan: HubPlan, control: SyncControl | None, clock: Clock
) -> SpesError | None:
    """Everything but the status: join Secrets, ownership, plan of the sync server, assignments.

    Answers the first refusal that concerns one peer alone.

    Raises:
        ConflictError: The ownership changed since it was read, or the sync server refuses the plan.
        UnavailableError: The API or the sync server is away.
    """
    isolation = Isolation()
    for key, peer in plan.join_secrets.items():
        secret = mint(key, peer=peer, job_uid=seen.job.metadata.uid, now=clock.now())
        with isolation.each():
            await api.apply(HUB_OWNER, secret)
    if plan.ownership is not None:
        await write_ownership(api, seen, plan.ownership)
        return isolation.refusal
    if control is not None:
        if plan.sync_plan is not None:
            await control.apply_plan(plan.sync_plan)
        if plan.drain is not None:
            await control.drain(plan.drain)
    for assignment in plan.apply:
        with isolation.each():
            await api.apply(HUB_OWNER, _assignment_json(assignment))
    unneeded = [("Secret", key) for key in plan.delete_secrets]
    for kind, key in (*unneeded, *(("TrainerAssignment", key) for key in plan.delete)):
        with isolation.each():
            await api.delete(kind, key.namespace, key.name)
    return isolation.refusal


async def write_ownership(api: KubeApi, seen: HubView, ownership: Ownership) -> None:
    """The commit point: only if nobody wrote since it was read."""
    metadata = seen.job.metadata
    key = ObjectKey(metadata.namespace, metadata.name)
    config_map = ownership.to_config_map(key, metadata.uid)
    if ownership.resource_version:
        await api.replace(HUB_OWNER, config_map)
    else:
        await api.create(HUB_OWNER, config_map)


async def write_status(api: KubeApi, seen: HubView, plan: HubPlan) -> None:
    """Events first: a crash between the two says something twice rather than never."""
    for event in plan.events:
        await post(api, HUB_OWNER, event)
    if plan.status != seen.job.status:
        metadata = seen.job.metadata
        document = status_json(plan.status)
        await api.patch_status(
            "SpesJob", metadata.namespace, metadata.name, document, uid=metadata.uid
        )


def status_json(status: SpesJobStatus) -> JsonObject:
    """The status as Kubernetes stores it: absent, never null."""
    return status.model_dump(by_alias=True, mode="json", exclude_none=True)


def _assignment_json(assignment: TrainerAssignment) -> JsonObject:
    document = assignment.model_dump(by_alias=True, mode="json", exclude_none=True)
    metadata = assignment.metadata
    document["metadata"] = {
        "namespace": metadata.namespace,
        "name": metadata.name,
        "labels": metadata.labels,
    }
    del document["status"]
    return document
