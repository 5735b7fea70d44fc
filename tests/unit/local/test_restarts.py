"""What follows the end of a job's process: counted, ignored, failed, or completed."""

from dataclasses import replace

import pytest
from builders.processes import make_job
from spes_operator.k8s.workloads import JobStatus
from spes_operator.local.restarts import exit_code, status_after_exit

JOB = make_job(backoff_limit=2, ignore_exit_codes=(75,), fail_exit_codes=(2,))


@pytest.mark.parametrize(
    ("code", "disrupted", "active", "restarts", "reason"),
    [
        pytest.param(0, False, False, 0, "Completed", id="completes"),
        pytest.param(1, False, True, 1, "", id="counts"),
        pytest.param(137, False, True, 1, "", id="out of memory counts"),
        pytest.param(137, True, True, 0, "", id="a disruption is not counted"),
        pytest.param(75, False, True, 0, "", id="an interruption is not counted"),
        pytest.param(2, False, False, 0, "Failed", id="unusable configuration fails at once"),
    ],
)
def test_each_end_has_its_consequence(code, disrupted, active, restarts, reason):
    status = status_after_exit(JOB, code, disrupted=disrupted)
    assert (status.active, status.restarts, status.reason) == (active, restarts, reason)
    assert (status.exit_code, status.ready) == (code, False)


def test_the_job_fails_after_backoff_limit_restarts():
    worn = replace(JOB, status=JobStatus(active=True, restarts=2))
    status = status_after_exit(worn, 1, disrupted=False)
    assert (status.active, status.reason) == (False, "BackoffLimitExceeded")
    assert "3 times, the last time with 1" in status.message


def test_a_signal_is_reported_as_kubelets_do():
    assert (exit_code(-9), exit_code(-15), exit_code(3)) == (137, 143, 3)
