"""Waits before another attempt: doubled, spread and bounded."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spes_operator.backoff import Backoff

RENEWALS = Backoff(first=timedelta(seconds=15), longest=timedelta(minutes=2))


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 15), (2, 30), (3, 60), (4, 120), (10_000, 120)]
)
def test_waits_double_up_to_a_cap(failures, seconds):
    assert RENEWALS.after(failures, jitter=0) == timedelta(seconds=seconds / 2)
    assert RENEWALS.after(failures, jitter=0.999) < timedelta(seconds=seconds)


@given(failures=st.integers(1, 10**6), jitter=st.floats(0, 1, exclude_max=True))
def test_a_wait_is_never_short_and_never_above_the_cap(failures, jitter):
    wait = RENEWALS.after(failures, jitter=jitter)
    assert RENEWALS.first / 2 <= wait <= RENEWALS.longest


def test_drawn_waits_differ():
    assert len({RENEWALS.drawn(3) for _ in range(20)}) > 1
