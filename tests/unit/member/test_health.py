"""An agent that goes round is alive, whatever its hub does."""

from datetime import timedelta

from builders.clock import FakeClock
from spes_operator.member.health import MemberHealth


def make_health():
    clock = FakeClock()
    periods = {"lease": timedelta(seconds=10), "resync": timedelta(seconds=30)}
    return MemberHealth(clock, periods), clock


def test_loops_that_never_go_round_are_stuck():
    health, clock = make_health()
    assert health.stuck_loops() == ()
    clock.advance(121)
    assert health.stuck_loops() == ("lease",)
    clock.advance(60)
    assert health.stuck_loops() == ("lease", "resync")


def test_failed_attempts_keep_the_agent_alive():
    health, clock = make_health()
    for _ in range(100):
        clock.advance(60)
        health.attempted("lease")
        health.attempted("resync")
        assert health.stuck_loops() == ()
    assert not health.reaches_hub
    assert health.hub_silent_for == timedelta(seconds=6_000)


def test_hub_is_reached_until_three_beats_are_missed():
    health, clock = make_health()
    assert not health.reaches_hub
    health.heard()
    clock.advance(30)
    assert health.reaches_hub
    clock.advance(1)
    assert not health.reaches_hub
