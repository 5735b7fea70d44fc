"""Means over seeds, and when they are told apart."""

from __future__ import annotations

from math import sqrt

import pytest
from bench.science.estimates import Told, difference, estimate
from hypothesis import given
from hypothesis import strategies as st

LOSSES = st.lists(st.floats(1, 6), min_size=2, max_size=6)


def test_an_estimate_has_the_deviation_of_a_sample():
    found = estimate([1.0, 2.0, 3.0])
    assert (found.mean, found.deviation, found.num_seeds) == (2.0, 1.0, 3)
    assert found.standard_error == pytest.approx(1 / sqrt(3))


def test_errors_of_two_arms_add_as_squares():
    found = difference(estimate([1.0, 2.0, 3.0]), estimate([4.0, 4.0, 4.0]))
    assert found.mean == -2.0
    assert found.standard_error == pytest.approx(1 / sqrt(3))
    assert found.told is Told.LOWER


@pytest.mark.parametrize(
    ("shift", "told"),
    [(-1.7, Told.LOWER), (-1.6, Told.NOT_APART), (1.6, Told.NOT_APART), (1.7, Told.HIGHER)],
)
def test_a_difference_counts_beyond_two_standard_errors(shift, told):
    """Two deviations of 1 with three seeds: the error is 0.816, twice that is 1.633."""
    ours = [value + shift for value in (1.0, 2.0, 3.0)]
    assert difference(estimate(ours), estimate([1.0, 2.0, 3.0])).told is told


def test_equal_losses_without_spread_are_not_told_apart():
    assert difference(estimate([2.0, 2.0]), estimate([2.0, 2.0])).told is Told.NOT_APART


def test_one_seed_tells_nothing():
    assert difference(estimate([1.0]), estimate([5.0, 5.1])).told is Told.UNKNOWN


@given(LOSSES, LOSSES)
def test_a_difference_turns_round_with_its_arms(ours, theirs):
    one, other = (difference(estimate(a), estimate(b)) for a, b in ((ours, theirs), (theirs, ours)))
    assert one.mean == pytest.approx(-other.mean)
    assert one.standard_error == pytest.approx(other.standard_error)
