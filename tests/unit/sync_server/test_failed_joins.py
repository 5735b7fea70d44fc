"""The budget of failed Joins."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from spes_sync.server.failed_joins import BURST, MAX_REMEMBERED, PERIOD, FailedJoins


def used_up(*keys: str) -> FailedJoins:
    failed = FailedJoins()
    assert [failed.count(keys, 0.0) for _ in range(BURST)] == [None] * BURST
    return failed


def test_failures_beyond_the_burst_must_wait():
    assert used_up("a").count(["a"], 0.0) == PERIOD


def test_those_that_wait_as_told_are_looked_into_again():
    failed = used_up("a")
    wait = failed.count(["a"], 0.0)
    assert failed.count(["a"], wait.total_seconds()) is None


def test_trying_on_makes_the_wait_no_longer():
    failed = used_up("a")
    assert {failed.count(["a"], 0.0) for _ in range(100)} == {PERIOD}


def test_each_key_has_a_budget_of_its_own():
    failed = used_up("a")
    assert failed.count(["b"], 0.0) is None
    assert failed.count(["b", "a"], 0.0) == PERIOD


def test_memory_is_bounded():
    failed = FailedJoins()
    for number in range(2 * MAX_REMEMBERED):
        failed.count([f"address {number}"], 0.0)
    assert len(failed) == MAX_REMEMBERED


@given(st.lists(st.floats(0, 30), max_size=200))
def test_no_more_are_looked_into_than_burst_and_time_allow(pauses):
    failed, now, free = FailedJoins(), 0.0, 0
    for pause in pauses:
        now += pause
        free += failed.count(["a"], now) is None
    assert free <= BURST + 1 + timedelta(seconds=now) / PERIOD
