"""The learning rate over global tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spes_trainer.schedule import Schedule

RELEASED = Schedule(peak=5e-4, warmup_tokens=2000, max_tokens=50_000, final_fraction=0.1)


@pytest.mark.parametrize(
    ("position", "rate"),
    [
        (1, 5.0225e-5),
        (1000, 2.75e-4),
        (2000, 5e-4),
        (14_000, 4.340990258e-4),
        (26_000, 2.75e-4),
        (50_000, 5e-5),
        (70_000, 5e-5),
    ],
)
def test_rate_follows_warmup_and_cosine(position, rate):
    assert RELEASED.rate(position) == pytest.approx(rate, rel=1e-9)


@given(
    warmup=st.integers(0, 1000),
    cosine=st.integers(0, 1000),
    final=st.floats(0, 1),
    position=st.integers(0, 3000),
)
def test_rate_stays_between_final_and_peak(warmup, cosine, final, position):
    schedule = Schedule(
        peak=0.5, warmup_tokens=warmup, max_tokens=warmup + cosine, final_fraction=final
    )
    assert 0.5 * final - 1e-12 <= schedule.rate(position) <= 0.5 + 1e-12
