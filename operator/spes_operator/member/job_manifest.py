"""A trainer as a batch/v1 Job, and the Job as a trainer again. Pure; called by `cluster_backend`.

The Job is created once and deleted, never applied again: applying it without `suspend` would start
a Job that Kueue holds back.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from spes_operator.k8s.api import JsonObject
from spes_operator.k8s.workloads import JobStatus, LocalJob
from spes_operator.member.pod_manifest import CONTAINER, PodSettings, pod_spec
from spes_operator.names import LABEL_JOB_UID

LABEL_ASSIGNMENT = "spes.dev/assignment"
LABEL_SLOT = "spes.dev/slot"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_BY = "spes-member"
# On whatever this agent makes.
OURS = {LABEL_MANAGED_BY: MANAGED_BY}
# Selects the Jobs that `job_manifest` makes, and their pods.
TRAINERS: Mapping[str, str | None] = OURS | dict.fromkeys(
    (LABEL_JOB_UID, LABEL_ASSIGNMENT, LABEL_SLOT)
)
# Kueue reads it (https://kueue.sigs.k8s.io/docs/tasks/run/jobs).
LABEL_QUEUE = "kueue.x-k8s.io/queue-name"
# Pods of a Job carry it.
LABEL_OF_POD = "batch.kubernetes.io/job-name"


def job_manifest(job: LocalJob, settings: PodSettings) -> JsonObject:
    """The Job; what it runs and where is the pod's own affair (`pod_manifest`)."""
    labels = OURS | {
        "app.kubernetes.io/name": "spes-trainer",
        LABEL_JOB_UID: job.job_uid,
        LABEL_ASSIGNMENT: job.assignment,
        LABEL_SLOT: job.slot,
    }
    queue = {LABEL_QUEUE: job.pod.queue} if job.pod.queue else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "namespace": settings.namespace,
            "name": job.name,
            "labels": labels | queue,
        },
        "spec": {
            "backoffLimit": job.backoff_limit,
            "completions": 1,
            "parallelism": 1,
            # A trainer that is still saving keeps its volume and its Session.
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": _failure_rules(job)},
            **({"suspend": True} if job.suspend else {}),
            "template": {"metadata": {"labels": labels}, "spec": pod_spec(job, settings)},
        },
    }


def _failure_rules(job: LocalJob) -> list[JsonObject]:
    """The first that fits decides; an exit that none fits counts towards the limit."""
    rules: list[JsonObject] = [
        {
            "action": "Ignore",
            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
        }
    ]
    for action, codes in (("Ignore", job.ignore_exit_codes), ("FailJob", job.fail_exit_codes)):
        if codes:
            on_exit = {"containerName": CONTAINER, "operator": "In", "values": sorted(codes)}
            rules.append({"action": action, "onExitCodes": on_exit})
    return rules


def read_job(document: JsonObject, status: JobStatus) -> LocalJob:
    """Which trainer a Job of ours runs; its mounts and exit codes are not read: nobody asks.

    Raises:
        KeyError: It is no Job that `job_manifest` made.
    """
    spec = document["spec"]
    return _read(
        document["metadata"]["name"],
        document["metadata"]["labels"],
        spec["template"]["spec"],
        status,
    )


def read_leftover_pod(pod: JsonObject) -> LocalJob:
    """The trainer in a pod whose Job is gone: it is being stopped.

    Raises:
        KeyError: It is no pod of a Job that `job_manifest` made.
    """
    labels = pod["metadata"]["labels"]
    return _read(labels[LABEL_OF_POD], labels, pod["spec"], JobStatus(active=True))


def _read(
    name: str, labels: Mapping[str, str], pod: Mapping[str, Any], status: JobStatus
) -> LocalJob:
    trainer = next(one for one in pod["containers"] if one["name"] == CONTAINER)
    return LocalJob(
        name=name,
        job_uid=labels[LABEL_JOB_UID],
        assignment=labels[LABEL_ASSIGNMENT],
        slot=labels[LABEL_SLOT],
        command=tuple(trainer["command"]),
        grace=timedelta(seconds=pod["terminationGracePeriodSeconds"]),
        status=status,
    )
