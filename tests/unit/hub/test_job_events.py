"""Which changes of a status are said, and how."""

from datetime import UTC, datetime

import pytest
from builders.hub_world import job_document
from spes_api.job import SpesJob, SpesJobStatus
from spes_api.schema_base import Condition
from spes_operator.hub.events import job_events

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def status(**conditions):
    return SpesJobStatus(
        conditions=[
            Condition(type=kind, status=value, reason=reason, message="because")
            for kind, (value, reason) in conditions.items()
        ]
    )


def said(before, after):
    job = SpesJob.model_validate(job_document()).model_copy(update={"status": before})
    return [(event.type, event.reason) for event in job_events(job, after, None, now=NOW)]


@pytest.mark.parametrize(
    ("before", "after", "events"),
    [
        ({}, {"Ready": ("False", "WaitingForPods")}, [("Normal", "WaitingForPods")]),
        ({}, {"Degraded": ("False", "AsExpected"), "Failed": ("False", "AsExpected")}, []),
        (
            {"Ready": ("False", "WaitingForPods")},
            {"Ready": ("False", "Seeding")},
            [("Normal", "Seeding")],
        ),
        (
            {"Ready": ("False", "Seeding")},
            {"Ready": ("False", "NoGPUCapacity")},
            [("Warning", "NoGPUCapacity")],
        ),
        (
            {"Ready": ("True", "Training")},
            {"Ready": ("False", "WaitingForPods")},
            [("Warning", "WaitingForPods")],
        ),
        ({"Ready": ("True", "Training")}, {"Ready": ("True", "Training")}, []),
        (
            {"Ready": ("True", "Training"), "Complete": ("False", "Training")},
            {"Ready": ("True", "MaxTokensReached"), "Complete": ("True", "MaxTokensReached")},
            [("Normal", "MaxTokensReached")],
        ),
        (
            {"Degraded": ("False", "AsExpected")},
            {"Degraded": ("True", "MemberUnreachable")},
            [("Warning", "MemberUnreachable")],
        ),
        ({"Degraded": ("True", "PodPreempted")}, {"Degraded": ("False", "AsExpected")}, []),
        (
            {"Degraded": ("True", "QuotaExceeded"), "Ready": ("True", "Training")},
            {"Degraded": ("True", "QuotaExceeded"), "Ready": ("False", "QuotaExceeded")},
            [],
        ),
        (
            {"Ready": ("True", "Training")},
            {"Ready": ("False", "TrainerFailed"), "Failed": ("True", "TrainerFailed")},
            [("Warning", "TrainerFailed")],
        ),
        (
            {"Suspended": ("True", "SuspendRequested")},
            {"Suspended": ("False", "AsExpected")},
            [("Normal", "Resumed")],
        ),
    ],
)
def test_a_change_is_said_once_and_a_problem_as_a_warning(before, after, events):
    assert said(status(**before), status(**after)) == events
