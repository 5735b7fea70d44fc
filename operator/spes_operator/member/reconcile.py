"""reconcile_member: one pass over a member, from all that is seen to all that is to be done. Pure.

Called by the member's controller whenever an assignment, a token or a Job changed. A Job is created
once and deleted, never changed: what decides about it is in its name. Jobs of gone assignments are
stopped, also after the member was away; those of assignments that cannot be read are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from spes_api.kinds import (
    DatasetOffer,
    LimitsReport,
    MemberReportStatus,
    SlotOffer,
    TrainerAssignment,
    TrainerAssignmentStatus,
)

from spes_operator.k8s.events import Event
from spes_operator.k8s.workloads import LocalJob, Stop
from spes_operator.member.limits import key_of, refusal, slot_of
from spes_operator.member.manifests import job_name, local_job
from spes_operator.member.status import assignment_status
from spes_operator.member.view import MemberPlan, MemberView, Refusal
from spes_operator.names import ObjectKey
from spes_operator.reasons import (
    APPLIED,
    ASSIGNMENT_REFUSED,
    NAME_CONFLICT,
    QUEUED,
    VETOED_BY_MEMBER,
)

# How often a member is looked at without any change.
RESYNC = timedelta(seconds=30)


def reconcile_member(seen: MemberView, *, now: datetime) -> MemberPlan:
    """What to do now, and when to look again."""
    assignments = sorted(seen.assignments, key=key_of)
    refusals = {key_of(item): refusal(seen, item) for item in assignments}
    statuses = {
        key_of(item): assignment_status(
            item, _job_of(seen, item), _told(seen, item, refusals[key_of(item)]), now=now
        )
        for item in assignments
    }
    return MemberPlan(
        create=tuple(
            _new_job(seen, item)
            for item in assignments
            if refusals[key_of(item)] is None and _may_start(seen, item)
        ),
        stop=tuple(
            Stop(name=job.name, grace=job.grace) for job in seen.jobs if _is_over(seen, job)
        ),
        statuses=statuses,
        report=_report(seen),
        events=tuple(_events(seen, statuses, now)),
        again_in=RESYNC,
    )


def _job_of(seen: MemberView, assignment: TrainerAssignment) -> LocalJob | None:
    """The Job that runs it: the present one, or an older one that is still being stopped."""
    jobs = [job for job in seen.jobs if job.assignment == assignment.metadata.name]
    jobs.sort(key=lambda job: job.name != job_name(assignment))
    return jobs[0] if jobs else None


def _told(
    seen: MemberView, assignment: TrainerAssignment, refused: Refusal | None
) -> Refusal | None:
    """What the hub is told of a refusal, or of whom it waits for: nothing once it is to go."""
    if assignment.spec.desired != "Run":
        return None
    return refused or _wait(seen, assignment)


def _wait(seen: MemberView, assignment: TrainerAssignment) -> Refusal | None:
    """Its slot runs another job's trainer."""
    name, slot = assignment.metadata.name, assignment.spec.slot
    in_slot = [job.assignment for job in seen.jobs if job.slot == slot]
    if not in_slot or name in in_slot:
        return None
    return Refusal(QUEUED, f"slot {slot} runs the trainer of assignment {in_slot[0]}")


def _may_start(seen: MemberView, assignment: TrainerAssignment) -> bool:
    """It is wanted, and no other trainer is in the slot, not even one that is being stopped."""
    return assignment.spec.desired == "Run" and all(
        job.slot != assignment.spec.slot for job in seen.jobs
    )


def _new_job(seen: MemberView, assignment: TrainerAssignment) -> LocalJob:
    slot = slot_of(seen, assignment)
    assert slot is not None  # else it was refused
    return local_job(
        assignment,
        slot=slot,
        paths=seen.paths(slot.name),
        secret=assignment.spec.join_secret,
    )


def _is_over(seen: MemberView, job: LocalJob) -> bool:
    """Its assignment is gone, or asks for its end or another Job; or nobody was there for long."""
    assignment = _assignment_of(seen, job)
    if assignment is None and seen.assignments_known and job.assignment not in seen.unreadable:
        return True
    if assignment is not None and _ends(assignment, job):
        return True
    return seen.hub_silent_for > seen.limits.orphan_after and not job.status.ready


def _ends(assignment: TrainerAssignment, job: LocalJob) -> bool:
    if assignment.spec.desired == "Run":
        return job.name != job_name(assignment)
    return assignment.spec.desired == "Stop"


def _assignment_of(seen: MemberView, job: LocalJob) -> TrainerAssignment | None:
    return next(
        (
            item
            for item in seen.assignments
            if item.metadata.name == job.assignment and item.spec.job_uid == job.job_uid
        ),
        None,
    )


def _report(seen: MemberView) -> MemberReportStatus:
    inventory, limits = seen.inventory, seen.limits
    return MemberReportStatus(
        cluster_id=inventory.cluster_id,
        version=inventory.version,
        kubernetes_version=inventory.kubernetes_version,
        credential=seen.credential,
        quotas=list(inventory.quotas),
        limits=LimitsReport(
            images=sorted(limits.images),
            priority_classes=sorted(limits.priority_classes),
            queues=sorted(limits.queues),
            node_selector_keys=sorted(limits.node_selector_keys),
            max_jobs=limits.max_jobs,
        ),
        slots=[
            SlotOffer(
                name=slot.name,
                memory_bytes=slot.memory_bytes,
                activation_bytes=slot.activation_bytes,
                resources=dict(slot.resources),
            )
            for slot in sorted(inventory.slots, key=lambda slot: slot.name)
        ],
        datasets=[
            DatasetOffer(name=name, manifest_sha256=sha256)
            for name, sha256 in sorted(inventory.datasets.items())
        ],
    )


def _events(
    seen: MemberView, statuses: dict[ObjectKey, TrainerAssignmentStatus], now: datetime
) -> Iterator[Event]:
    """A refusal that a person must act upon, when it begins."""
    for item in seen.assignments:
        new = next(one for one in statuses[key_of(item)].conditions if one.type == APPLIED)
        old = next((one for one in item.status.conditions if one.type == APPLIED), None)
        is_new = old is None or old.reason != new.reason
        if is_new and new.reason in (VETOED_BY_MEMBER, NAME_CONFLICT):
            yield Event(
                reason=ASSIGNMENT_REFUSED,
                message=f"{item.peer}: {new.reason}: {new.message}",
                kind=item.kind,
                namespace=item.metadata.namespace,
                name=item.metadata.name,
                uid=item.metadata.uid,
                time=now,
                type="Warning",
            )
