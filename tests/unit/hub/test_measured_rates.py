"""The speeds by which experts are placed: measured, but not to the last digit."""

import pytest
from spes_operator.hub.candidates import coarse_rates


def test_a_peer_that_never_trained_has_no_rate():
    assert coarse_rates([0.0, 2500.0]) == [None, 1.0]
    assert coarse_rates([0.0, 0.0]) == [None, None]
    assert coarse_rates([]) == []


@pytest.mark.parametrize("fastest", [1.0, 700.0, 2790.0, 3001.0, 1e6])
def test_ten_percent_make_no_difference_whatever_the_fastest(fastest):
    assert coarse_rates([fastest, 0.9 * fastest]) == [1.0, 1.0]


def test_half_the_speed_is_about_half_the_rate():
    fast, slow = coarse_rates([3000.0, 1500.0])
    assert slow / fast == pytest.approx(0.5, rel=0.12)
