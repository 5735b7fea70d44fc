"""What `spes explain sj/NAME` says of a job of a hub."""

import json
from datetime import UTC, datetime

import pytest
from builders.hub_objects import TRAINING, HubObjects, condition
from spes_operator.cli import main
from spes_operator.cli.explain import explain_on_hub
from spes_operator.errors import ConfigError
from spes_operator.hub.ownership import Cause, Move, Ownership
from spes_operator.names import ObjectKey

KEY = ObjectKey("research", "moe-tiny")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
WAITS = {"conditions": [condition("Ready", "False", "NotEnoughMembers", "1 of at least 2")]}


@pytest.fixture
def hub():
    return HubObjects()


def explained(hub, capsys, output="text"):
    assert hub.run(explain_on_hub(hub.api, KEY, output)) == 0
    said = capsys.readouterr().out
    return json.loads(said) if output == "json" else said


def test_a_job_that_waits_is_placed_on_real_slots_as_it_would_be(hub, capsys):
    hub.job(status=WAITS)
    hub.member("uni-a", slots=(8, 4))
    said = explained(hub, capsys)
    assert said.startswith("! not ready: NotEnoughMembers: 1 of at least 2\n")
    assert "uni-a.0 owns 4 of 8 experts: its share by speed is 4.00, its memory holds 8" in said
    assert "uni-a.1 owns 4 of 8 experts: all that its memory holds (4)" in said
    assert "its speed is not measured yet" in said


@pytest.mark.parametrize(
    ("member", "why"),
    [
        ({"spec": {"accepted": False}}, "member uni-b is not accepted"),
        ({"spec": {"accepted": True, "unschedulable": True}}, "member uni-b is drained"),
        ({"ready": "Unknown"}, "member uni-b is silent: it gets no experts until it is heard"),
        ({"slots": (0,)}, "uni-b.0: its 0.031 GB cannot hold the model"),
    ],
)
def test_members_that_are_not_used_are_named_with_the_reason(hub, capsys, member, why):
    hub.job(status=WAITS, trainer={"activationBytes": 2**24 + 2**23})
    hub.member("uni-a")
    hub.member("uni-b", **member)
    told = explained(hub, capsys, "json")
    assert told["unused"] == [why]
    assert told["waitsFor"] == "NotEnoughMembers: 1 of at least 2"


def test_a_cluster_under_a_second_name_is_told(hub, capsys):
    hub.job(status=WAITS)
    hub.member("uni-a")
    hub.member("uni-b")
    hub.report_as("uni-b", "uni-a")
    told = explained(hub, capsys, "json")
    assert told["unused"] == ["the cluster of member uni-b is member uni-a already"]


def test_missing_data_and_other_labels_are_reasons_too(hub, capsys):
    text = {"sources": [{"dataset": {"name": "c4"}}], "sequenceTokens": 256}
    hub.job(data=text, members={"selector": {"tier": "gold"}})
    hub.member("uni-a")
    assert explained(hub, capsys, "json")["unused"] == [
        "member uni-a does not match members.selector",
        "member uni-a has no dataset c4",
    ]


def test_slots_beyond_the_most_members_are_told(hub, capsys):
    hub.job(members={"min": 1, "max": 1})
    hub.member("uni-a", slots=(8, 8))
    told = explained(hub, capsys, "json")
    assert told["unused"] == ["uni-a.1: members.max is 1, others come first"]
    assert [peer["peer"] for peer in told["peers"]] == ["uni-a.0"]


def test_a_veto_of_the_member_is_told(hub, capsys):
    uid = hub.job(status=WAITS)
    hub.member("uni-a")
    hub.assignment("uni-a.0", uid, ("Applied", "False", "VetoedByMember", "image is not allowed"))
    told = explained(hub, capsys, "json")
    assert told["unused"] == ["uni-a.0: VetoedByMember: image is not allowed"]
    assert told["peers"][0]["peer"] == "each of 4 peers"  # without any, equal ones are shown


def test_a_running_job_shows_who_owns_what_and_how_that_came(hub, capsys):
    uid = hub.job(status=TRAINING)
    hub.member("uni-a")
    hub.member("uni-b")
    move = Move(
        epoch=3,
        time=NOW,
        round=5,
        expert=4,
        source="uni-c.0",
        target="uni-a.0",
        cause=Cause.SILENCE,
        reason="uni-c.0: member uni-c is silent for 180 s",
        lower_bound=1,
    )
    owners = dict.fromkeys(range(5), "uni-a.0") | dict.fromkeys(range(5, 8), "uni-b.0")
    peers = ("uni-a.0", "uni-b.0")
    hub.ownership(
        uid, Ownership(epoch=3, peers=peers, owners=owners, moves=(move,), changed_at=NOW)
    )
    said = explained(hub, capsys)
    assert "not ready" not in said
    assert "Not used" not in said
    assert "uni-a.0 owns 5 of 8 experts in epoch 3" in said
    assert "epoch 3: 1 moved (at least 1 had to): uni-c.0: member uni-c is silent for 180 s" in said


def test_a_job_with_a_wrong_spec_says_what_is_wrong(hub):
    hub.job(members={"min": 3, "max": 2})
    with pytest.raises(ConfigError, match="min must be at most max"):
        hub.run(explain_on_hub(hub.api, KEY, "text"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sj/moe", "--kubeconfig", "/nowhere"], "/nowhere names no context"),
        (["moe", "-n", "research", "--kubeconfig", "/nowhere"], "/nowhere gives no access"),
        (["moe"], "moe: no such file; of a job on a hub: spes explain sj/moe"),
        (["sj/moe", "--members", "members.yaml"], "leave --members out"),
    ],
)
def test_a_name_is_of_a_hub_where_it_says_so(arguments, words, capsys):
    assert main(["explain", *arguments]) == 2
    assert words in capsys.readouterr().err
