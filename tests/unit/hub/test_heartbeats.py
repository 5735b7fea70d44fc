"""Silence and return, by the hub's own clock alone."""

from datetime import timedelta

from spes_operator.hub.heartbeats import Heartbeats

SECOND = timedelta(seconds=1)


def observed(*beats):
    heartbeats = Heartbeats(started_at=0.0)
    for now, text in beats:
        heartbeats.observe("uni-a", text, now=now, interval=SECOND)
    return heartbeats


def test_only_a_change_is_a_sign_of_life():
    heartbeats = observed((1, "x"), (5, "x"), (9, "x"))
    assert heartbeats.silent_for("uni-a", now=10) == timedelta(seconds=9)


def test_the_text_of_the_lease_is_never_read_as_time():
    heartbeats = observed((1, "2099-01-01T00:00:00Z"), (2, "1970-01-01T00:00:00Z"))
    assert heartbeats.silent_for("uni-a", now=3) == SECOND


def test_unheard_member_is_silent_since_the_hub_started():
    assert Heartbeats(started_at=5).silent_for("uni-a", now=8) == timedelta(seconds=3)


def test_return_is_counted_from_the_first_beat_after_a_silence():
    heartbeats = observed((1, "a"), (2, "b"), (30, "c"), (31, "d"))
    assert heartbeats.back_for("uni-a", now=33) == timedelta(seconds=3)


def test_late_beat_is_no_return():
    assert observed((1, "a"), (4, "b")).back_for("uni-a", now=5) is None


def test_a_beat_shows_a_clock_only_when_it_was_seen_to_change():
    assert observed((1, "x")).renewed("uni-a") == ""
    assert observed((1, "x"), (2, "y"), (3, "y")).renewed("uni-a") == "y"
    assert observed().renewed("uni-a") == ""
