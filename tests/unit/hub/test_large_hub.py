"""One job over 200 members, as pure passes: what each one writes, and in which order."""

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
NUM_MEMBERS, NUM_EXPERTS = 200, 256
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


def large_view():
    document = job_document(members={"min": 2, "max": NUM_MEMBERS})
    document["spec"]["model"] = {"config": MODEL}
    document["metadata"]["uid"] = "uid-1"
    return HubView(
        job=SpesJob.model_validate(document),
        ownership=None,
        members=tuple(member(index) for index in range(NUM_MEMBERS)),
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
            job_uid="uid-1",
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


def test_two_hundred_members_start_in_four_passes_and_then_rest():
    seen = large_view()
    plan = reconcile_job(seen, now=NOW)
    assert (len(plan.join_secrets), len(plan.apply)) == (NUM_MEMBERS, 0)
    seen = written(seen, plan)
    plan = reconcile_job(seen, now=NOW)
    assert (len(plan.join_secrets), len(plan.apply)) == (0, NUM_MEMBERS)
    assert len(plan.sync_plan.tokens) == NUM_MEMBERS
    seen = all_caught_up(written(seen, plan))
    plan = reconcile_job(seen, now=NOW)
    assert plan.ownership is not None
    assert plan.apply == ()
    assert plan.sync_plan is None
    seen = written(seen, plan)
    plan = reconcile_job(seen, now=NOW)
    assert len(plan.sync_plan.owners) == NUM_EXPERTS
    assert len(plan.apply) == NUM_MEMBERS
    assert {len(seen.ownership.owned_by(peer)) for peer in seen.ownership.peers} == {1, 2}
    seen = written(seen, plan)
    plan = reconcile_job(seen, now=NOW)
    assert (plan.join_secrets, plan.sync_plan, plan.apply, plan.delete) == ({}, None, (), ())
    assert (plan.ownership, plan.drain, plan.events) == (None, None, ())
    assert plan.status == seen.job.status


def test_status_and_assignments_stay_small():
    seen = large_view()
    for _ in range(2):
        seen = written(seen, reconcile_job(seen, now=NOW))
    seen = all_caught_up(seen)
    seen = written(seen, reconcile_job(seen, now=NOW))
    plan = reconcile_job(seen, now=NOW)
    assert len(plan.status.model_dump_json()) < 50_000
    assert max(len(item.model_dump_json()) for item in plan.apply) < 10_000
    assert all(len(event.message.encode()) < 100_000 for event in plan.events)
    assert all(len(event.to_json()["message"].encode()) <= 1024 for event in plan.events)
