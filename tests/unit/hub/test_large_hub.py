"""One job over 200 members, as pure passes: what each one writes, and in which order."""

from dataclasses import replace
from datetime import timedelta

from builders.hub_world import job_document
from builders.large_hub import NOW, NUM_EXPERTS, all_caught_up, large_view, written
from spes_api.job import SpesJob
from spes_operator.hub.reconcile import reconcile_job

NUM_MEMBERS = 200


def test_two_hundred_members_start_in_four_passes_and_then_rest():
    seen = large_view(NUM_MEMBERS)
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
    seen = large_view(NUM_MEMBERS)
    for _ in range(2):
        seen = written(seen, reconcile_job(seen, now=NOW))
    seen = all_caught_up(seen)
    seen = written(seen, reconcile_job(seen, now=NOW))
    plan = reconcile_job(seen, now=NOW)
    assert len(plan.status.model_dump_json()) < 50_000
    assert max(len(item.model_dump_json()) for item in plan.apply) < 10_000
    assert all(len(event.message.encode()) < 100_000 for event in plan.events)
    assert all(len(event.to_json()["message"].encode()) <= 1024 for event in plan.events)


def test_a_job_without_trainers_is_seldom_looked_at():
    short = {"reassignment": {"unreachableAfterSeconds": 4, "reassignAfterSeconds": 10}}
    seen = large_view(2)
    looks = {}
    for suspend in (False, True):
        document = job_document(suspend=suspend, members={"min": 2, "max": 2}, **short)
        document["metadata"]["uid"] = "uid-1"
        job = SpesJob.model_validate(document)
        looks[suspend] = reconcile_job(replace(seen, job=job), now=NOW).again_in
    assert looks[False] == timedelta(seconds=1)
    assert looks[True] == timedelta(seconds=30)
