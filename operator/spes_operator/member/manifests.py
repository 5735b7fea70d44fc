"""From a TrainerAssignment to the job that runs it. Pure; the same for pods and for processes.

`job_manifest` makes a Kubernetes Job of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import timedelta

from spes_api.exit_codes import TO_BE_CONTINUED, UNUSABLE
from spes_api.kinds import TrainerAssignment
from spes_api.readiness import READY_FILE, READY_MAX_AGE

from spes_operator.k8s.workloads import (
    FileProbe,
    LocalJob,
    PodRequest,
    SecretMount,
    WorkloadPaths,
)
from spes_operator.member.view import Slot
from spes_operator.names import CA_FILE, TOKEN_FILE

_HASH = 5


def job_name(assignment: TrainerAssignment) -> str:
    """Another name, and so another Job, for another template or another address of the server."""
    spec = assignment.spec
    text = f"{spec.job_uid}/{spec.template_hash}/{spec.sync.endpoint}"
    return f"{assignment.metadata.name}-{hashlib.sha256(text.encode()).hexdigest()[:_HASH]}"


def local_job(
    assignment: TrainerAssignment, *, slot: Slot, paths: WorkloadPaths, secret: str
) -> LocalJob:
    """The Job of an assignment.

    Args:
        assignment: What the hub wants.
        slot: Where it runs.
        paths: Where its files are.
        secret: Name of the local Secret with token and CA.
    """
    spec, template = assignment.spec, assignment.spec.template
    return LocalJob(
        name=job_name(assignment),
        job_uid=spec.job_uid,
        assignment=assignment.metadata.name,
        slot=spec.slot,
        command=_command(assignment, slot, paths),
        env=slot.env,
        secret_mounts=(SecretMount(secret=secret, directory=paths.secrets),),
        ready_probe=FileProbe(path=paths.work / READY_FILE, max_age=READY_MAX_AGE),
        backoff_limit=spec.backoff_limit,
        ignore_exit_codes=(TO_BE_CONTINUED,),
        fail_exit_codes=(UNUSABLE,),
        grace=timedelta(seconds=template.grace_period_seconds),
        suspend=bool(template.queue_name),
        pod=PodRequest(
            image=template.image,
            resources=_resources(template.resources, slot),
            datasets=tuple(template.datasets),
            node_selector={**template.node_selector, **slot.node_selector},
            priority_class=template.priority_class_name,
            queue=template.queue_name,
        ),
    )


def _command(assignment: TrainerAssignment, slot: Slot, paths: WorkloadPaths) -> tuple[str, ...]:
    slowdown = () if slot.slowdown == 1 else ("--slowdown", str(slot.slowdown))
    return (
        *("spes-trainer", "train"),
        *("--dir", str(paths.work)),
        *("--peer", assignment.peer),
        *("--sync", assignment.spec.sync.endpoint),
        *("--ca", str(paths.secrets / CA_FILE)),
        *("--token-file", str(paths.secrets / TOKEN_FILE)),
        *("--data-root", str(paths.data)),
        *slowdown,
    )


def _resources(asked: Mapping[str, str], slot: Slot) -> dict[str, str]:
    """What the slot lends, and what the job asks for beside it; devices are the slot's alone."""
    beside = {name: quantity for name, quantity in asked.items() if "/" not in name}
    return {**beside, **slot.resources}
