"""Of members that are one cluster the first one is used, whoever reports and in whatever order."""

import itertools

import pytest
from spes_api.kinds import (
    MemberCluster,
    MemberClusterSpec,
    MemberClusterStatus,
    MemberReport,
    MemberReportStatus,
)
from spes_api.schema_base import Metadata
from spes_operator.hub.twins import with_twins
from spes_operator.hub.view import MemberSeen


def member(name, *, pinned="", expected="", reported="", made="2026-01-01T00:00:00Z"):
    report = MemberReport(
        metadata=Metadata(name="report"), status=MemberReportStatus(cluster_id=reported)
    )
    return MemberSeen(
        cluster=MemberCluster(
            metadata=Metadata(name=name, creation_timestamp=made),
            spec=MemberClusterSpec(accepted=True, expected_cluster_id=expected),
            status=MemberClusterStatus(cluster_id=pinned),
        ),
        report=report if reported else None,
    )


LATER = "2026-01-02T00:00:00Z"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (member("uni-a", reported="c1"), member("uni-b", reported="c1", made=LATER)),
        (member("uni-b", reported="c1"), member("uni-a", reported="c1", made=LATER)),
        (member("uni-a", reported="c1"), member("uni-b", reported="c1")),
        (member("uni-b", pinned="c1", made=LATER), member("uni-a", reported="c1")),
        (member("uni-b", expected="c1", made=LATER), member("uni-a", reported="c1")),
        (member("uni-b", pinned="c1", reported="c9"), member("uni-a", reported="c1")),
    ],
    ids=["older", "older by time", "by name", "pinned", "expected", "another one answers"],
)
def test_the_first_one_is_used(first, second):
    for members in itertools.permutations([first, second, member("uni-c", reported="c3")]):
        assert {one.name: one.twin for one in with_twins(members)} == {
            first.name: "",
            second.name: first.name,
            "uni-c": "",
        }


def test_members_that_have_not_said_who_they_are_are_no_twins():
    assert [one.twin for one in with_twins([member("uni-a"), member("uni-b")])] == ["", ""]


def test_a_member_is_free_again_without_its_twin():
    second = member("uni-b", reported="c1", made=LATER)
    assert with_twins([second]) == (second,)
