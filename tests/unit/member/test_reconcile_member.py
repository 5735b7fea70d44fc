"""Tables of what a member does with what it sees."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import PurePath

import pytest
from spes_api.kinds import SyncTarget, TrainerAssignment, TrainerAssignmentSpec, TrainerTemplate
from spes_api.schema_base import Metadata
from spes_operator.k8s.workloads import JobStatus, WorkloadPaths
from spes_operator.member.manifests import job_name, local_job
from spes_operator.member.reconcile import reconcile_member
from spes_operator.member.view import (
    Inventory,
    MemberLimits,
    MemberView,
    Refusal,
    Slot,
)
from spes_operator.names import ObjectKey

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SLOT = Slot(name="0", memory_bytes=2**30)


def paths(slot):
    return WorkloadPaths(
        work=PurePath(f"/slots/{slot}"), secrets=PurePath("/secrets"), data=PurePath("/data")
    )


def assignment(name="moe-tiny-0", *, desired="Run", uid="uid-1", slot="0", endpoint="hub:1", **kw):
    return TrainerAssignment(
        metadata=Metadata(namespace="spes-member-uni-a", name=name, generation=3),
        spec=TrainerAssignmentSpec(
            job_uid=uid,
            slot=slot,
            desired=desired,
            template=TrainerTemplate(grace_period_seconds=10, **kw),
            template_hash="h1",
            join_secret=f"{name}-join",
            sync=SyncTarget(endpoint=endpoint, ca_bundle="PEM"),
        ),
    )


def job_for(item, **status):
    job = local_job(item, slot=SLOT, paths=paths("0"), secret=item.spec.join_secret)
    return replace(job, status=JobStatus(**({"active": True} | status)))


def view(*assignments, jobs=(), tokens=True, **changes):
    held = frozenset(
        ObjectKey(item.metadata.namespace, item.metadata.name)
        for item in (assignments if tokens else ())
    )
    values = {
        "member": "uni-a",
        "assignments": assignments,
        "jobs": tuple(jobs),
        "tokens": held,
        "limits": MemberLimits(),
        "inventory": Inventory(cluster_id="c1", version="1", slots=(SLOT,)),
        "paths": paths,
    }
    return MemberView(**(values | changes))


def conditions(plan, item):
    status = plan.statuses[ObjectKey(item.metadata.namespace, item.metadata.name)]
    return {one.type: one for one in status.conditions}


def test_assignment_becomes_a_job_with_the_trainers_command():
    item = assignment()
    (job,) = reconcile_member(view(item), now=NOW).create
    assert job.command == (
        *("spes-trainer", "train", "--dir", "/slots/0", "--peer", "uni-a.0"),
        *("--sync", "hub:1", "--ca", "/secrets/ca.crt", "--token-file", "/secrets/token"),
        *("--data-root", "/data"),
    )
    assert job.name.startswith("moe-tiny-0-")
    assert (job.ignore_exit_codes, job.fail_exit_codes) == ((75,), (2,))
    assert job.grace == timedelta(seconds=10)
    assert job.ready_probe.path == PurePath("/slots/0/ready")


def test_slow_slot_is_slowed_down():
    slot = replace(SLOT, slowdown=2.0, env={"OMP_NUM_THREADS": "1"})
    inventory = Inventory(cluster_id="c1", version="1", slots=(slot,))
    (job,) = reconcile_member(view(assignment(), inventory=inventory), now=NOW).create
    assert job.command[-2:] == ("--slowdown", "2.0")
    assert job.env == {"OMP_NUM_THREADS": "1"}


def test_running_job_is_never_created_or_changed_again():
    item = assignment()
    plan = reconcile_member(view(item, jobs=[job_for(item, ready=True)]), now=NOW)
    assert (plan.create, plan.stop) == ((), ())
    assert conditions(plan, item)["PodReady"].status == "True"


def test_more_experts_change_no_job():
    item = assignment()
    spec = item.spec.model_copy(update={"experts": "0-7", "ownership_epoch": 9})
    changed = item.model_copy(update={"spec": spec})
    plan = reconcile_member(view(changed, jobs=[job_for(item)]), now=NOW)
    assert (plan.create, plan.stop) == ((), ())


def test_draining_changes_no_job():
    item = assignment(desired="Drain")
    plan = reconcile_member(view(item, jobs=[job_for(item)]), now=NOW)
    assert (plan.create, plan.stop) == ((), ())
    assert reconcile_member(view(item), now=NOW).create == ()


def test_stopped_assignment_ends_its_job_with_grace_and_says_when_it_is_gone():
    item = assignment(desired="Stop")
    job = job_for(item)
    plan = reconcile_member(view(item, jobs=[job]), now=NOW)
    assert [(stop.name, stop.grace) for stop in plan.stop] == [(job.name, job.grace)]
    assert conditions(plan, item)["Drained"].status == "False"
    plan = reconcile_member(view(item), now=NOW)
    assert conditions(plan, item)["Drained"].status == "True"


@pytest.mark.parametrize("change", [{"uid": "uid-2"}, {"endpoint": "hub:2"}])
def test_new_job_waits_for_the_old_one_to_end(change):
    old = job_for(assignment())
    item = assignment(**change)
    plan = reconcile_member(view(item, jobs=[old]), now=NOW)
    assert (len(plan.stop), plan.create) == (1, ())
    (job,) = reconcile_member(view(item), now=NOW).create
    assert job.name != old.name


def test_one_slot_runs_one_trainer():
    first, second = assignment("job-a"), assignment("job-b", uid="uid-2")
    plan = reconcile_member(view(first, second, jobs=[job_for(first)]), now=NOW)
    assert plan.create == ()


def test_job_of_a_gone_assignment_is_stopped():
    plan = reconcile_member(view(jobs=[job_for(assignment())]), now=NOW)
    assert len(plan.stop) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tokens": False}, "WaitingForToken"),
        ({"inventory": Inventory(cluster_id="c", version="1", slots=())}, "SlotNotOffered"),
        ({"limits": MemberLimits(images=frozenset({"good"}))}, "VetoedByMember"),
        ({"limits": MemberLimits(max_jobs=0)}, "VetoedByMember"),
        ({"rejected": {job_name(assignment()): Refusal("NameConflict", "x")}}, "NameConflict"),
    ],
    ids=["no token", "no slot", "image", "too many", "name"],
)
def test_refused_assignment_says_why(changes, reason):
    item = assignment()
    plan = reconcile_member(view(item, **changes), now=NOW)
    assert plan.create == ()
    applied = conditions(plan, item)["Applied"]
    assert (applied.status, applied.reason) == ("False", reason)
    assert applied.observed_generation == 3


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"queue_name": "q"}, "queueName is not allowed here (got 'q', allowed: none)"),
        (
            {"priority_class_name": "high"},
            "priorityClassName is not allowed here (got 'high', allowed: low)",
        ),
        (
            {"node_selector": {"team": "a"}},
            "nodeSelector team is not allowed here"
            " (allowed: nvidia.com/gpu.memory, nvidia.com/gpu.product)",
        ),
        (
            {"resources": {"nvidia.com/gpu": "8"}},
            "slot 0 lends fewer nvidia.com/gpu (got 8, lent: 1)",
        ),
    ],
    ids=["queue", "priority", "nodes", "devices"],
)
def test_nothing_beyond_the_limits_is_run(asked, message):
    item = assignment(**asked)
    slot = replace(SLOT, resources={"nvidia.com/gpu": "1"})
    seen = view(
        item,
        limits=MemberLimits(priority_classes=frozenset({"low"})),
        inventory=Inventory(cluster_id="c1", version="1", slots=(slot,)),
    )
    plan = reconcile_member(seen, now=NOW)
    assert plan.create == ()
    applied = conditions(plan, item)["Applied"]
    assert (applied.reason, applied.message) == ("VetoedByMember", message)


def test_pod_gets_what_slot_and_job_say_and_devices_from_the_slot_alone():
    item = assignment(
        image="other",
        resources={"memory": "8Gi", "cpu": "2", "nvidia.com/gpu": "1", "example.com/nic": "4"},
        node_selector={"nvidia.com/gpu.memory": "81920"},
        queue_name="q",
    )
    slot = replace(
        SLOT,
        resources={"cpu": "4", "nvidia.com/gpu": "2"},
        node_selector={"nvidia.com/gpu.product": "A100"},
    )
    seen = view(
        item,
        limits=MemberLimits(images=frozenset({"other"}), queues=frozenset({"q"})),
        inventory=Inventory(cluster_id="c1", version="1", slots=(slot,)),
    )
    (job,) = reconcile_member(seen, now=NOW).create
    assert (job.suspend, job.pod.queue, job.pod.image) == (True, "q", "other")
    assert job.pod.resources == {"memory": "8Gi", "cpu": "4", "nvidia.com/gpu": "2"}
    assert job.pod.node_selector == {
        "nvidia.com/gpu.memory": "81920",
        "nvidia.com/gpu.product": "A100",
    }


def test_unread_hub_stops_no_job_for_want_of_an_assignment():
    seen = view(jobs=[job_for(assignment())], assignments_known=False)
    assert reconcile_member(seen, now=NOW).stop == ()
    later = replace(seen, hub_silent_for=timedelta(hours=1))
    assert len(reconcile_member(later, now=NOW).stop) == 1


def test_disrupted_trainer_is_degraded():
    item = assignment()
    job = job_for(item, disrupted=True, reason="Unschedulable", message="no node")
    found = conditions(reconcile_member(view(item, jobs=[job]), now=NOW), item)
    assert (found["Degraded"].status, found["Degraded"].reason) == ("True", "PodPreempted")
    assert (found["PodReady"].reason, found["PodReady"].message) == ("Unschedulable", "no node")


def test_stopped_assignment_ends_whatever_the_number_of_trainers_allowed():
    old, new = assignment("a", desired="Stop"), assignment("b", slot="1")
    slots = (SLOT, replace(SLOT, name="1"))
    seen = view(
        old,
        new,
        jobs=[job_for(old)],
        limits=MemberLimits(max_jobs=1),
        inventory=Inventory(cluster_id="c1", version="1", slots=slots),
    )
    plan = reconcile_member(seen, now=NOW)
    assert [stop.name for stop in plan.stop] == [job_name(old)]
    assert [job.name for job in plan.create] == [job_name(new)]


def test_missing_dataset_is_a_veto():
    item = assignment(datasets=["corpus"])
    applied = conditions(reconcile_member(view(item), now=NOW), item)["Applied"]
    assert (applied.reason, applied.message) == ("VetoedByMember", "no dataset corpus here")


def test_refusal_is_an_event_once():
    item = assignment()
    seen = view(item, limits=MemberLimits(images=frozenset({"good"})))
    first = reconcile_member(seen, now=NOW)
    assert [event.reason for event in first.events] == ["AssignmentRefused"]
    (status,) = first.statuses.values()
    told = item.model_copy(update={"status": status})
    assert reconcile_member(replace(seen, assignments=(told,)), now=NOW).events == ()


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"active": False, "exit_code": 0, "reason": "Completed"}, "Completed"),
        ({"active": False, "exit_code": 2, "reason": "Failed"}, "TrainerFailed"),
        (
            {"active": False, "exit_code": 1, "restarts": 7, "reason": "BackoffLimitExceeded"},
            "BackoffLimitExceeded",
        ),
    ],
)
def test_ended_job_is_finished_and_not_started_again(status, reason):
    item = assignment()
    plan = reconcile_member(view(item, jobs=[job_for(item, **status)]), now=NOW)
    assert (plan.create, plan.stop) == ((), ())
    finished = conditions(plan, item)["Finished"]
    assert (finished.status, finished.reason) == ("True", reason)


def test_restarting_trainer_is_degraded():
    item = assignment()
    plan = reconcile_member(view(item, jobs=[job_for(item, restarts=2, exit_code=1)]), now=NOW)
    assert conditions(plan, item)["Degraded"].message == "restarted 2 times, last exit code 1"


def test_orphan_stops_only_without_hub_and_without_session():
    item = assignment()
    long = timedelta(hours=1)
    live = view(item, jobs=[job_for(item, ready=True)], hub_silent_for=long)
    assert reconcile_member(live, now=NOW).stop == ()
    idle = view(item, jobs=[job_for(item)], hub_silent_for=long)
    assert len(reconcile_member(idle, now=NOW).stop) == 1


def test_report_tells_slots_datasets_and_limits():
    inventory = Inventory(
        cluster_id="c1",
        version="1.2",
        slots=(replace(SLOT, name="1"), SLOT),
        datasets={"corpus": "ab"},
        kubernetes_version="v1.34.4",
    )
    report = reconcile_member(view(inventory=inventory), now=NOW).report
    assert (report.kubernetes_version, report.limits.images) == ("v1.34.4", [""])
    assert [slot.name for slot in report.slots] == ["0", "1"]
    assert (report.cluster_id, report.datasets[0].manifest_sha256) == ("c1", "ab")


def test_unchanged_state_keeps_its_transition_times():
    item = assignment()
    seen = view(item, jobs=[job_for(item, ready=True)])
    (status,) = reconcile_member(seen, now=NOW).statuses.values()
    told = item.model_copy(update={"status": status})
    later = reconcile_member(
        replace(seen, assignments=(told,)), now=NOW + timedelta(hours=1)
    ).statuses
    assert list(later.values()) == [status]
