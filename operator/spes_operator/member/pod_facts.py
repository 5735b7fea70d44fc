"""How a trainer is, read from its Job, its pods and the Job's Events. Pure.

Facts alone: what a kubelet, a scheduler and the Job controller wrote, in the words of `reasons`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from spes_operator.k8s.api import JsonObject
from spes_operator.k8s.workloads import JobStatus
from spes_operator.member.pod_manifest import CONTAINER
from spes_operator.member.rejections import QUOTA_WORDS
from spes_operator.reasons import (
    BACKOFF_LIMIT_EXCEEDED,
    COMPLETED,
    IMAGE_PULL_FAILED,
    POD_CREATION_FAILED,
    POD_PREEMPTED,
    QUEUED,
    QUOTA_EXCEEDED,
    STARTING,
    TRAINER_FAILED,
    UNSCHEDULABLE,
)

# Reasons for which a container waits that mean: there is no such image, or no way to it.
_IMAGE_REASONS = frozenset(
    {
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
# Waiting that needs nobody's attention.
_USUAL_REASONS = frozenset({"ContainerCreating", "PodInitializing", ""})
# The Job controller's words for a pod that admission refused.
_FAILED_CREATE = "FailedCreate"
_ENDED_PHASES = ("Succeeded", "Failed")


class _Trouble(NamedTuple):
    reason: str
    message: str = ""


def job_status(
    job: JsonObject, pods: Sequence[JsonObject], events: Sequence[JsonObject] = ()
) -> JobStatus:
    """The status of a Job.

    Args:
        job: The Job.
        pods: Those it controls.
        events: Those about the Job; asked for when it should have a pod and has none.
    """
    ordered = sorted(pods, key=_made_at)
    present = [pod for pod in ordered if not has_ended(pod)]
    last = next((pod for pod in reversed(ordered) if has_ended(pod)), None)
    status = JobStatus(
        active=True,
        ready=any(_ready(pod) for pod in present),
        restarts=int(job.get("status", {}).get("failed") or 0),
        exit_code=_exit_code(last),
    )
    if _has_condition(job, "Complete"):
        return replace(status, active=False, ready=False, exit_code=0, reason=COMPLETED)
    if (failure := _failure(job)) is not None:
        text = _last_words(last) or failure.message
        return replace(status, active=False, ready=False, reason=failure.reason, message=text)
    if status.ready:
        return status
    trouble = next(_troubles(job, present, last, events), _Trouble(STARTING))
    disrupted = last is not None and _disruption(last) is not None
    return replace(status, reason=trouble.reason, message=trouble.message, disrupted=disrupted)


def waits_for_a_pod(job: JsonObject, pods: Sequence[JsonObject]) -> bool:
    """It should have a pod, and has none: the Job's Events may say why."""
    suspended = bool(job["spec"].get("suspend"))
    over = _has_condition(job, "Complete") or _has_condition(job, "Failed")
    return not suspended and not over and all(has_ended(pod) for pod in pods)


def _failure(job: JsonObject) -> _Trouble | None:
    """Why the Job controller gave up, if it did."""
    condition = _condition(job, "Failed")
    if condition.get("status") != "True":
        return None
    gave_up = condition.get("reason") == BACKOFF_LIMIT_EXCEEDED
    reason = BACKOFF_LIMIT_EXCEEDED if gave_up else TRAINER_FAILED
    return _Trouble(reason, condition.get("message", ""))


def _troubles(
    job: JsonObject,
    present: Sequence[JsonObject],
    last: JsonObject | None,
    events: Sequence[JsonObject],
) -> Iterator[_Trouble]:
    """Why it is not ready, what a person can mend first."""
    if job["spec"].get("suspend"):
        yield _Trouble(QUEUED, "the Job is suspended until its queue admits it")
    for pod in reversed(present):
        yield from _pod_troubles(pod)
    if not present:
        yield from _creation_troubles(events)
    if last is not None and (disruption := _disruption(last)) is not None:
        yield _Trouble(POD_PREEMPTED, disruption)
    if last is not None and (code := _exit_code(last)) is not None:
        words = _last_words(last)
        text = f"ended with {code}; is started again"
        yield _Trouble(STARTING, f"{text}: {words}" if words else text)


def _pod_troubles(pod: JsonObject) -> Iterator[_Trouble]:
    if (disruption := _disruption(pod)) is not None:
        yield _Trouble(POD_PREEMPTED, disruption)
    waiting = _trainer(pod).get("state", {}).get("waiting", {})
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    if reason in _IMAGE_REASONS:
        yield _Trouble(IMAGE_PULL_FAILED, f"{reason}: {message}" if message else reason)
    elif reason not in _USUAL_REASONS:
        yield _Trouble(reason, message)
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        yield _Trouble(scheduled.get("reason") or UNSCHEDULABLE, scheduled.get("message", ""))


def _creation_troubles(events: Sequence[JsonObject]) -> Iterator[_Trouble]:
    refused = [event for event in events if event.get("reason") == _FAILED_CREATE]
    refused.sort(key=_last_seen)
    if refused:
        text = str(refused[-1].get("message", ""))
        yield _Trouble(QUOTA_EXCEEDED if QUOTA_WORDS in text else POD_CREATION_FAILED, text)


def _last_seen(event: Mapping[str, Any]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def _made_at(pod: JsonObject) -> tuple[str, str]:
    metadata = pod["metadata"]
    return metadata.get("creationTimestamp", ""), metadata["name"]


def has_ended(pod: JsonObject) -> bool:
    """Its containers have ended, and none is started in it again."""
    return pod.get("status", {}).get("phase") in _ENDED_PHASES


def _ready(pod: JsonObject) -> bool:
    return _has_condition(pod, "Ready")


def _disruption(pod: JsonObject) -> str | None:
    """Why the pod was taken away, if it was."""
    condition = _condition(pod, "DisruptionTarget")
    if condition.get("status") != "True":
        return None
    return ": ".join(filter(None, (condition.get("reason"), condition.get("message"))))


def _has_condition(obj: JsonObject, kind: str) -> bool:
    return _condition(obj, kind).get("status") == "True"


def _condition(obj: JsonObject, kind: str) -> Mapping[str, Any]:
    conditions = obj.get("status", {}).get("conditions", ())
    return next((one for one in conditions if one["type"] == kind), {})


def _trainer(pod: JsonObject) -> Mapping[str, Any]:
    statuses = pod.get("status", {}).get("containerStatuses", ())
    return next((one for one in statuses if one["name"] == CONTAINER), {})


def _exit_code(pod: JsonObject | None) -> int | None:
    code = _terminated(pod).get("exitCode")
    return None if code is None else int(code)


def _last_words(pod: JsonObject | None) -> str:
    """The last line that the trainer wrote before it failed."""
    lines = str(_terminated(pod).get("message") or "").strip().splitlines()
    return lines[-1].strip() if lines else ""


def _terminated(pod: JsonObject | None) -> Mapping[str, Any]:
    if pod is None:
        return {}
    found: Mapping[str, Any] = _trainer(pod).get("state", {}).get("terminated", {})
    return found
