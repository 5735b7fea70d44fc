"""One job over many members as the hub sees it, and what plans make of it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from builders.hub_world import job_document
from spes_api.job import SpesJob
from spes_api.kinds import (
    MemberCluster,
    MemberClusterSpec,
    MemberReport,
    MemberReportStatus,
    SlotOffer,
)
from spes_api.schema_base import Metadata
from spes_operator.hub.reconcile import reconcile_job
from spes_operator.hub.sync_state import PeerState, Phase, SyncState, TokenHash
from spes_operator.hub.view import HubView, MemberSeen, ServerSeen

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NUM_EXPERTS = 256
MODEL = {
    "vocabulary": 256,
    "width": 64,
    "numLayers": 1,
    "numHeads": 2,
    "expertWidth": 32,
    "numExperts": NUM_EXPERTS,
    "numExpertsPerToken": 2,
}


def member(index):
    name = f"uni-{index:03}"
    slot = SlotOffer(name="0", memory_bytes=2**32, activation_bytes=0)
    return MemberSeen(
        cluster=MemberCluster(metadata=Metadata(name=name), spec=MemberClusterSpec(accepted=True)),
        report=MemberReport(
            metadata=Metadata(name="report", namespace=f"spes-member-{name}"),
            status=MemberReportStatus(slots=[slot]),
        ),
    )


def large_view(num_members, *, uid="uid-1"):
    document = job_document(members={"min": 2, "max": num_members})
    document["spec"]["model"] = {"config": MODEL}
    document["metadata"]["uid"] = uid
    return HubView(
        job=SpesJob.model_validate(document),
        ownership=None,
        members=tuple(member(index) for index in range(num_members)),
        assignments=(),
        server=ServerSeen(ready=True, endpoint="hub:1", ca_bundle="PEM"),
        sync=SyncState(),
        hub_age=timedelta(hours=1),
    )


def written(seen, plan):
    """The view after everything in the plan was written."""
    if plan.ownership is not None:
        return replace(seen, ownership=replace(plan.ownership, resource_version="1"))
    tokens = {
        key: TokenHash(id=key.namespace, peer=peer, sha256="", expires_at=NOW + timedelta(days=1))
        for key, peer in plan.join_secrets.items()
    }
    sync = seen.sync
    if plan.sync_plan is not None:
        sync = replace(
            sync,
            job_uid=plan.sync_plan.job_uid,
            incarnation=plan.sync_plan.incarnation,
            pending_epoch=plan.sync_plan.epoch,
        )
    return replace(
        seen,
        job=seen.job.model_copy(update={"status": plan.status}),
        join_secrets={**seen.join_secrets, **tokens},
        assignments=(*(seen.assignments if not plan.apply else ()), *plan.apply),
        applied=plan.sync_plan or seen.applied,
        sync=sync,
    )


def all_caught_up(seen):
    peers = {
        item.peer: PeerState(peer=item.peer, connected=True, caught_up=True, version=0)
        for item in seen.assignments
    }
    return replace(seen, sync=replace(seen.sync, phase=Phase.WAITING, version=0, peers=peers))


def at_rest(num_members, *, uid="uid-1"):
    """Every member trains, and nothing is left to be written."""
    seen = large_view(num_members, uid=uid)
    for _ in range(2):
        seen = written(seen, reconcile_job(seen, now=NOW))
    seen = all_caught_up(seen)
    for _ in range(2):
        seen = written(seen, reconcile_job(seen, now=NOW))
    return seen
