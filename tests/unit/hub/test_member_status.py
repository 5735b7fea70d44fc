from datetime import UTC, datetime, timedelta

import pytest
from spes_api.kinds import (
    MemberCluster,
    MemberClusterSpec,
    MemberClusterStatus,
    MemberReport,
    MemberReportStatus,
)
from spes_api.schema_base import Metadata
from spes_operator.hub.members import member_status
from spes_operator.hub.view import MemberSeen

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def seen(*, spec=None, status=None, cluster_id="c1", **changes):
    cluster = MemberCluster(
        metadata=Metadata(name="uni-a"),
        spec=MemberClusterSpec(**({"accepted": True} | (spec or {}))),
        status=status or MemberClusterStatus(),
    )
    report = MemberReport(
        metadata=Metadata(name="report", namespace="spes-member-uni-a"),
        status=MemberReportStatus(cluster_id=cluster_id),
    )
    return MemberSeen(**({"cluster": cluster, "report": report} | changes))


def condition(view, kind, num_assignments=0):
    status = member_status(view, num_assignments=num_assignments, now=NOW)
    return next(one for one in status.conditions if one.type == kind)


@pytest.mark.parametrize(
    ("view", "status", "reason"),
    [
        (seen(), "True", "Heartbeat"),
        (seen(spec={"accepted": False}), "False", "NotAccepted"),
        (seen(report=None), "False", "NeverSeen"),
        (seen(silent_for=timedelta(seconds=41)), "Unknown", "HeartbeatLost"),
        (seen(silent_for=timedelta(seconds=39)), "True", "Heartbeat"),
        (seen(back_for=timedelta(seconds=29)), "False", "Returning"),
        (seen(back_for=timedelta(seconds=30)), "True", "Heartbeat"),
        (seen(status=MemberClusterStatus(cluster_id="c0")), "False", "ClusterIDDiffers"),
    ],
)
def test_ready_says_why_not(view, status, reason):
    ready = condition(view, "Ready")
    assert (ready.status, ready.reason) == (status, reason)


def test_first_report_pins_the_cluster():
    first = member_status(seen(), num_assignments=0, now=NOW)
    assert first.cluster_id == "c1"
    second = member_status(seen(status=first, cluster_id="c2"), num_assignments=0, now=NOW)
    assert second.cluster_id == "c1"


def test_drained_only_when_nothing_is_left():
    view = seen(spec={"unschedulable": True})
    assert condition(view, "Draining", 1).status == "True"
    assert condition(view, "Drained", 1).status == "False"
    assert condition(view, "Drained", 0).status == "True"


def test_heartbeats_rewrite_the_status_once_a_minute_at_most():
    status = member_status(seen(), num_assignments=0, now=NOW)
    later = [
        member_status(seen(status=status), num_assignments=0, now=NOW + timedelta(seconds=after))
        for after in (30, 61)
    ]
    assert later[0] == status
    assert later[1] != status
