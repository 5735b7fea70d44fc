"""Tables of a MemberCluster's status: its conditions and the times in it."""

from datetime import UTC, datetime, timedelta

import pytest
from spes_api.kinds import (
    CredentialReport,
    MemberCluster,
    MemberClusterSpec,
    MemberClusterStatus,
    MemberReport,
    MemberReportStatus,
    SlotOffer,
)
from spes_api.schema_base import Metadata
from spes_operator.hub.members import Access, member_status, until_next_change
from spes_operator.hub.view import MemberSeen

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GIVEN = Access()


def seen(*, spec=None, status=None, annotations=None, reported=None, **changes):
    cluster = MemberCluster(
        metadata=Metadata(name="uni-a", annotations=annotations or {}),
        spec=MemberClusterSpec(**({"accepted": True} | (spec or {}))),
        status=status or MemberClusterStatus(),
    )
    report = MemberReport(
        metadata=Metadata(name="report", namespace="spes-member-uni-a"),
        status=MemberReportStatus(**({"cluster_id": "c1"} | (reported or {}))),
    )
    return MemberSeen(**({"cluster": cluster, "report": report} | changes))


def judged(view, *, access=GIVEN, assignments=(), now=NOW):
    return member_status(view, access=access, assignments=assignments, now=now)


def condition(view, kind, **changes):
    return next(one for one in judged(view, **changes).conditions if one.type == kind)


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
        (seen(twin="uni-0"), "False", "ClusterTaken"),
        (seen(twin="uni-0", spec={"accepted": False}), "False", "ClusterTaken"),
    ],
)
def test_ready_says_why_not(view, status, reason):
    ready = condition(view, "Ready")
    assert (ready.status, ready.reason) == (status, reason)


def test_first_report_pins_the_cluster():
    first = judged(seen())
    assert first.cluster_id == "c1"
    assert judged(seen(status=first, reported={"cluster_id": "c2"})).cluster_id == "c1"


def test_a_cluster_that_another_member_is_is_not_pinned():
    assert judged(seen(twin="uni-0")).cluster_id == ""


def test_drained_only_when_nothing_is_left():
    view = seen(spec={"unschedulable": True})
    assert condition(view, "Draining", assignments=["j1"]).status == "True"
    assert condition(view, "Drained", assignments=["j1"]).status == "False"
    assert condition(view, "Drained").status == "True"


def test_heartbeats_that_arrive_leave_the_status_as_it_is():
    status = judged(seen())
    later = judged(seen(status=status, renewed="1"), now=NOW + timedelta(hours=1))
    assert later == status
    assert later.last_heartbeat_observed is None


def test_a_silent_member_has_the_time_of_its_last_heartbeat():
    silent = judged(seen(silent_for=seconds(41)))
    assert silent.last_heartbeat_observed == "2025-12-31T23:59:19Z"
    view = seen(status=silent, silent_for=seconds(101))
    assert judged(view, now=NOW + seconds(60)) == silent
    restarted = judged(seen(status=silent))
    assert restarted.last_heartbeat_observed == silent.last_heartbeat_observed
    assert judged(seen(status=silent, renewed="1")).last_heartbeat_observed is None


def test_a_member_that_was_just_accepted_was_not_last_seen_when_the_hub_started():
    view = seen(silent_for=seconds(41), has_beaten=False)
    assert judged(view).last_heartbeat_observed is None
    assert condition(view, "Ready").message == "no heartbeat has come yet"


def test_accepted_only_once_it_has_its_rights():
    assert condition(seen(), "Accepted").status == "True"
    failed = Access(problem="NotInvited", message="run: spes invite uni-a")
    accepted = condition(seen(), "Accepted", access=failed)
    assert (accepted.status, accepted.reason) == ("False", "NotInvited")
    assert condition(seen(spec={"accepted": False}), "Accepted").reason == "NotAccepted"


def test_what_it_lends_and_runs_is_counted():
    slots = [
        SlotOffer(name="a", memory_bytes=1, resources={"nvidia.com/gpu": "8", "cpu": "16"}),
        SlotOffer(name="b", memory_bytes=1, resources={"amd.com/gpu": "1"}),
        SlotOffer(name="c", memory_bytes=1),
    ]
    status = judged(
        seen(reported={"slots": slots, "version": "0.1.0"}), assignments=["j1", "j2", "j1"]
    )
    assert (status.slots, status.gpus, status.jobs, status.version) == (3, 9, 2, "0.1.0")


CREDENTIAL = {"persisted": True, "expires_at": "2026-01-08T00:00:00Z"}


@pytest.mark.parametrize(
    ("credential", "status", "reason"),
    [
        (None, "Unknown", "NoCredential"),
        ({}, "True", "AsExpected"),
        ({"persisted": False}, "True", "CredentialNotKept"),
        ({"expires_at": "2026-01-01T23:59:59Z"}, "True", "CredentialEndsSoon"),
        ({"expires_at": "2026-01-01T00:00:00Z"}, "False", "CredentialExpired"),
        ({"expires_at": "soon"}, "Unknown", "NoCredential"),
        ({"expires_at": "2026-01-08T00:00:00"}, "Unknown", "NoCredential"),
    ],
)
def test_credential_says_when_it_must_be_renewed(credential, status, reason):
    told = None if credential is None else CredentialReport(**(CREDENTIAL | credential))
    view = seen(annotations={"spes.dev/invitation": "1"}, reported={"credential": told})
    valid = condition(view, "CredentialsValid")
    assert (valid.status, valid.reason) == (status, reason)


def test_an_expired_credential_names_the_cure():
    told = CredentialReport(expires_at="2025-12-31T00:00:00Z", persisted=True)
    valid = condition(seen(reported={"credential": told}), "CredentialsValid")
    assert "spes invite uni-a --renew" in valid.message


@pytest.mark.parametrize(
    ("renewed", "status", "reason"),
    [
        ("", "Unknown", "NotHeard"),
        ("2026-01-01T00:00:20.000000Z", "True", "AsExpected"),
        ("2026-01-01T00:01:20.000000Z", "False", "ClockDiffers"),
        ("2025-12-31T23:00:00.000000Z", "False", "ClockDiffers"),
        ("tomorrow", "Unknown", "NotHeard"),
    ],
)
def test_clock_is_told_and_decides_nothing(renewed, status, reason):
    view = seen(renewed=renewed, silent_for=timedelta(seconds=5))
    synced = condition(view, "ClockSynced")
    assert (synced.status, synced.reason) == (status, reason)
    assert condition(view, "Ready").status == "True"


def test_clock_is_told_as_before_until_a_beat_shows_it():
    before = judged(seen(renewed="2025-12-31T23:00:00Z"))
    assert condition(seen(status=before), "ClockSynced").reason == "ClockDiffers"


def seconds(value):
    return timedelta(seconds=value)


@pytest.mark.parametrize(
    ("members", "wait"),
    [
        ([], None),
        ([seen(silent_for=seconds(100))], None),
        ([seen(silent_for=seconds(15))], 25),
        ([seen(silent_for=seconds(15)), seen(silent_for=seconds(30))], 10),
        ([seen(silent_for=seconds(15), back_for=seconds(25))], 5),
        ([seen(silent_for=seconds(15), back_for=seconds(31))], 25),
    ],
)
def test_the_next_look_is_when_time_alone_changes_a_status(members, wait):
    found = until_next_change(members)
    assert found == (None if wait is None else timedelta(seconds=wait, milliseconds=100))


def test_what_is_looked_at_then_has_changed():
    view = seen(silent_for=seconds(15))
    later = seen(silent_for=seconds(15) + until_next_change([view]))
    assert condition(view, "Ready") != condition(later, "Ready")
