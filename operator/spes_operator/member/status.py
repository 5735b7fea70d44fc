"""Status of a TrainerAssignment: facts about its pod, from the Job that runs it. Pure."""

from __future__ import annotations

from datetime import datetime

from spes_api.kinds import TrainerAssignment, TrainerAssignmentStatus

from spes_operator.k8s.conditions import State, next_conditions
from spes_operator.k8s.events import MAX_MESSAGE_BYTES, cut
from spes_operator.k8s.workloads import JobStatus, LocalJob
from spes_operator.member.view import Refusal
from spes_operator.reasons import (
    APPLIED,
    AS_EXPECTED,
    BACKOFF_LIMIT_EXCEEDED,
    COMPLETED,
    DEGRADED,
    DRAINED,
    FINISHED,
    POD_PREEMPTED,
    POD_READY,
    SESSION_LIVE,
    STARTING,
    TRAINER_FAILED,
    TRAINING,
)


def assignment_status(
    assignment: TrainerAssignment,
    job: LocalJob | None,
    refused: Refusal | None,
    *,
    now: datetime,
) -> TrainerAssignmentStatus:
    """The status as it should be.

    Args:
        assignment: With the status before.
        job: The Job that runs it, if there is one.
        refused: Why there is none, if that is not as wanted.
        now: Time of the pass.
    """
    status = job.status if job else JobStatus()
    states = [
        _applied(assignment, job, refused),
        _pod_ready(job, status),
        _degraded(status),
        State(DRAINED, job is None and assignment.spec.desired == "Stop", AS_EXPECTED),
        _finished(job, status),
    ]
    return TrainerAssignmentStatus(
        observed_generation=assignment.metadata.generation,
        pod_name=job.name if job else "",
        restarts=status.restarts,
        exit_code=status.exit_code,
        message=cut(status.message, MAX_MESSAGE_BYTES),
        conditions=next_conditions(
            assignment.status.conditions,
            states,
            generation=assignment.metadata.generation,
            now=now,
        ),
    )


def _applied(assignment: TrainerAssignment, job: LocalJob | None, refused: Refusal | None) -> State:
    if refused is not None:
        return State(APPLIED, False, refused.reason, refused.message)
    wanted = assignment.spec.desired == "Run"
    return State(APPLIED, not wanted or job is not None, AS_EXPECTED if job else STARTING)


def _pod_ready(job: LocalJob | None, status: JobStatus) -> State:
    if status.ready:
        return State(POD_READY, True, SESSION_LIVE)
    if job is None:
        return State(POD_READY, False, STARTING, "no pod")
    return State(POD_READY, False, status.reason or STARTING, status.message)


def _degraded(status: JobStatus) -> State:
    if status.disrupted:
        return State(DEGRADED, True, POD_PREEMPTED, "the trainer's pod was taken away")
    if status.restarts and not status.ready:
        text = f"restarted {status.restarts} times, last exit code {status.exit_code}"
        return State(DEGRADED, True, status.reason or STARTING, f"{text} {status.message}".strip())
    return State(DEGRADED, False, AS_EXPECTED)


def _finished(job: LocalJob | None, status: JobStatus) -> State:
    if job is None or status.active or not status.reason:
        return State(FINISHED, False, TRAINING)
    if status.exit_code == 0:
        return State(FINISHED, True, COMPLETED, "the trainer ended after the server's Stop")
    reason = BACKOFF_LIMIT_EXCEEDED if status.reason == BACKOFF_LIMIT_EXCEEDED else TRAINER_FAILED
    text = f"exit code {status.exit_code} after {status.restarts} restarts"
    return State(FINISHED, True, reason, f"{text}: {status.message}" if status.message else text)
