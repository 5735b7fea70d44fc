"""What a member reads from a Job, its pods and its Events."""

import pytest
from builders.pod_states import failed_create, make_job_object, make_pod, terminated, waiting
from spes_operator.member.pod_facts import job_status, waits_for_a_pod


@pytest.mark.parametrize(
    ("pod", "reason", "message"),
    [
        (make_pod(), "Starting", ""),
        (make_pod(state=waiting("ContainerCreating")), "Starting", ""),
        (make_pod(PodScheduled="!Unschedulable"), "Unschedulable", "so it is"),
        (make_pod(PodScheduled="!SchedulingGated"), "SchedulingGated", "so it is"),
        (
            make_pod(state=waiting("ImagePullBackOff", "Back-off pulling image")),
            "ImagePullFailed",
            "ImagePullBackOff: Back-off pulling image",
        ),
        (make_pod(state=waiting("ErrImagePull", "no")), "ImagePullFailed", "ErrImagePull: no"),
        (make_pod(state=waiting("InvalidImageName")), "ImagePullFailed", "InvalidImageName"),
        (
            make_pod(state=waiting("CreateContainerConfigError", 'secret "x" not found')),
            "CreateContainerConfigError",
            'secret "x" not found',
        ),
        (
            make_pod(phase="Running", DisruptionTarget="PreemptionByScheduler"),
            "PodPreempted",
            "PreemptionByScheduler: so it is",
        ),
        (make_pod(phase="Running", Ready="!ContainersNotReady"), "Starting", ""),
    ],
)
def test_pod_that_is_not_ready_says_why(pod, reason, message):
    status = job_status(make_job_object(), [pod])
    assert (status.active, status.ready) == (True, False)
    assert (status.reason, status.message) == (reason, message)


def test_ready_pod_has_no_reason():
    status = job_status(make_job_object(failed=1), [make_pod(phase="Running", Ready="")])
    assert (status.ready, status.reason, status.restarts) == (True, "", 1)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ('pods "j-x" is forbidden: exceeded quota: gpus, requested: ...', "QuotaExceeded"),
        ('pods "j-x" is forbidden: violates PodSecurity "restricted"', "PodCreationFailed"),
    ],
)
def test_pod_that_is_not_admitted_says_why(message, reason):
    job = make_job_object()
    assert waits_for_a_pod(job, [])
    events = [failed_create("older", at="2025-01-01T00:00:00Z"), failed_create(message)]
    status = job_status(job, [], [events[1], events[0], {"reason": "SuccessfulDelete"}])
    assert (status.reason, status.message) == (reason, message)


def test_suspended_job_waits_in_its_queue():
    job = make_job_object(suspend=True)
    assert not waits_for_a_pod(job, [])
    assert job_status(job, []).reason == "Queued"


@pytest.mark.parametrize(
    ("code", "words", "message"),
    [
        (75, "", "ended with 75; is started again"),
        (137, "", "ended with 137; is started again"),
        (1, "a\nno disk\n", "ended with 1; is started again: no disk"),
    ],
)
def test_ended_trainer_is_started_again(code, words, message):
    pod = make_pod(phase="Failed", state=terminated(code, words))
    status = job_status(make_job_object(failed=1), [pod])
    assert waits_for_a_pod(make_job_object(), [pod])
    assert (status.active, status.exit_code, status.restarts) == (True, code, 1)
    assert (status.reason, status.message, status.disrupted) == ("Starting", message, False)


def test_trainer_is_disrupted_until_its_replacement_is_ready():
    gone = make_pod(
        phase="Failed", state=terminated(137), DisruptionTarget="DeletionByTaintManager"
    )
    status = job_status(make_job_object(), [gone, make_pod("p-1")])
    assert (status.disrupted, status.reason) == (True, "PodPreempted")
    waiting_pod = make_pod("p-1", PodScheduled="!Unschedulable")
    status = job_status(make_job_object(), [gone, waiting_pod])
    assert (status.disrupted, status.reason) == (True, "Unschedulable")
    ready = make_pod("p-1", phase="Running", Ready="")
    assert not job_status(make_job_object(), [ready, gone]).disrupted


@pytest.mark.parametrize(
    ("job", "pods", "exit_code", "reason"),
    [
        (make_job_object(Complete="CompletionsReached"), [], 0, "Completed"),
        (
            make_job_object(Failed="PodFailurePolicy"),
            [make_pod(phase="Failed", state=terminated(2, "bad model"))],
            2,
            "TrainerFailed",
        ),
        (
            make_job_object(Failed="BackoffLimitExceeded", failed=7),
            [make_pod(phase="Failed", state=terminated(1, "bad model"))],
            1,
            "BackoffLimitExceeded",
        ),
    ],
)
def test_ended_job_says_how(job, pods, exit_code, reason):
    status = job_status(job, pods)
    assert not status.active
    assert (status.exit_code, status.reason) == (exit_code, reason)
    assert status.message == ("bad model" if pods else "")
    assert not waits_for_a_pod(job, pods)


def test_ended_job_without_pods_speaks_for_itself():
    status = job_status(make_job_object(Failed="DeadlineExceeded"), [])
    assert (status.reason, status.message) == ("TrainerFailed", "DeadlineExceeded it is")
