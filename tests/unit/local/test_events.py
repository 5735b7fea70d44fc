"""The event grammar of local runs, its errors, and when events are due."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spes_operator.errors import ConfigError
from spes_operator.local.events import (
    Event,
    Verb,
    When,
    absent_at_start,
    check_members,
    due,
    parse_event,
)

WHENS = st.builds(When, unit=st.sampled_from(["round", "second"]), number=st.integers(1, 10**9 - 1))
EVENTS = st.builds(
    Event,
    target=st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True).filter(
        lambda name: name != "sync-server"
    ),
    verb=st.sampled_from(Verb),
    when=WHENS,
)


@given(event=EVENTS)
def test_what_is_printed_is_read_back(event):
    assert parse_event(str(event)) == event


@pytest.mark.parametrize(
    "text",
    ["uni-c preempted @ round 8", " uni-c   preempted@round  8 ", "uni-c preempted @round 8"],
)
def test_spaces_do_not_matter(text):
    assert str(parse_event(text)) == "uni-c preempted @ round 8"


def test_seconds_may_touch_their_unit():
    assert parse_event("uni-d joins @ 30s") == parse_event("uni-d joins @ 30 s")


def test_the_sync_server_can_be_killed():
    assert parse_event("sync-server killed @ round 3").target == "sync-server"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("uni-c preempted round 8", "must be MEMBER VERB @ WHEN"),
        ("preempted @ round 8", "must be MEMBER VERB @ WHEN"),
        ("", "must be MEMBER VERB @ WHEN"),
        ("uni-c explodes @ round 8", "got 'explodes', expected one of joins, leaves, preempted"),
        ("uni-c preempted @ 8", "got '8', expected 'round N' or 'N s'"),
        ("uni-c preempted @ round -1", "expected 'round N' or 'N s'"),
        ("uni-c preempted @ round 0", "counted from 1"),
        ("uni_c preempted @ round 8", "'uni_c' is no member's name"),
        ("sync-server leaves @ round 8", "can only be killed"),
    ],
)
def test_a_wrong_event_says_what_is_wrong(text, complaint):
    with pytest.raises(ConfigError) as caught:
        parse_event(text)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_member_is_named_with_the_known_ones():
    events = [parse_event("uni-x joins @ round 2"), parse_event("sync-server killed @ round 2")]
    (problem,) = check_members(events, ["uni-b", "uni-a"])
    assert "got 'uni-x', expected one of uni-a, uni-b" in problem


def test_a_member_whose_first_event_is_joins_starts_absent():
    lines = ["uni-d preempted @ round 9", "uni-d joins @ round 2", "uni-a killed @ round 1"]
    assert absent_at_start([parse_event(line) for line in lines]) == {"uni-d"}


def test_a_member_that_joins_again_later_starts_present():
    lines = ["uni-a killed @ round 3", "uni-a joins @ round 6"]
    assert absent_at_start([parse_event(line) for line in lines]) == frozenset()


def test_events_are_due_when_their_round_opens_or_their_second_passes():
    pending = [
        parse_event(line) for line in ("a killed @ round 4", "b killed @ round 3", "c killed @ 9 s")
    ]
    assert due(pending, open_round=2, elapsed=8.9) == []
    assert [str(event) for event in due(pending, open_round=4, elapsed=9.0)] == [
        "b killed @ round 3",
        "a killed @ round 4",
        "c killed @ 9 s",
    ]
