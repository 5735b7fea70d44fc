"""What follows the end of a process: the rules of the Job controller and of a StatefulSet. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from spes_operator.backoff import Backoff
from spes_operator.k8s.workloads import JobStatus, LocalJob

# The kubelet starts at 10 s and stops at 5 min; on one machine a trainer is back in a second.
RESTARTS = Backoff(first=timedelta(seconds=0.5), longest=timedelta(seconds=15))
# Exit code of a process ended by signal N, as kubelets and shells report it: 128 + N.
_SIGNALLED = 128


def exit_code(returncode: int) -> int:
    """The exit code in a pod's form; `returncode` is -N if signal N ended the process."""
    return _SIGNALLED - returncode if returncode < 0 else returncode


def status_after_exit(job: LocalJob, code: int, *, disrupted: bool) -> JobStatus:
    """The job's status once its process ended with `code`.

    Args:
        job: The job with the status it had.
        code: Exit code of the process.
        disrupted: The process was taken away (its node went, or the world killed it): never
            counted, as a Job's policy ignores disruptions.
    """
    status = replace(job.status, ready=False, exit_code=code)
    if code == 0:
        return replace(status, active=False, reason="Completed", message="")
    if disrupted or code in job.ignore_exit_codes:
        return replace(status, active=True, message=f"ended with {code}; is started again")
    if code in job.fail_exit_codes:
        return replace(status, active=False, reason="Failed", message=f"ended with {code}")
    restarts = status.restarts + 1
    if restarts > job.backoff_limit:
        return replace(
            status,
            active=False,
            restarts=restarts,
            reason="BackoffLimitExceeded",
            message=f"ended {restarts} times, the last time with {code}",
        )
    return replace(
        status, active=True, restarts=restarts, message=f"ended with {code}; is started again"
    )
