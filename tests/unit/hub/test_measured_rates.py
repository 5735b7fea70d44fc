"""The speed by which experts are placed: measured, but not to the last digit."""

import pytest
from spes_operator.hub.candidates import measured_rate
from spes_operator.hub.sync_state import PeerState


def state(rate):
    return PeerState(peer="uni-a.0", tokens_per_second=rate)


@pytest.mark.parametrize("session", [None, state(0.0)], ids=["no session", "no step yet"])
def test_a_peer_that_never_trained_has_no_rate(session):
    assert measured_rate(session) is None


def test_a_few_percent_make_no_difference():
    assert measured_rate(state(2600.0)) == measured_rate(state(2500.0))


def test_half_the_speed_is_half_the_rate():
    ratio = measured_rate(state(3000.0)) / measured_rate(state(1500.0))
    assert ratio == pytest.approx(2.0, rel=0.25)


def test_what_the_rate_says_is_within_a_step_of_the_truth():
    for rate in (0.5, 1.0, 700.0, 3001.0, 1e6):
        assert measured_rate(state(rate)) == pytest.approx(rate, rel=0.12)
