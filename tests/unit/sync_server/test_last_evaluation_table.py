"""The end of the round table: who evaluates the final version, and when everybody stops."""

from __future__ import annotations

import pytest
from builders.sync_rounds import A, B, Machine, opened
from spes_sync.rounds import Phase
from spes_sync.rounds import events as ev


def completed(*, evaluate: bool = True) -> Machine:
    machine = opened(A, B, max_tokens=20).verify(A).verify(B).do(ev.Committed(global_tokens=20))
    assert machine.state.phase is Phase.COMPLETE
    assert not machine.did(ev.StopSent)
    return machine.do(ev.Exported(evaluate=evaluate))


def test_lowest_live_peer_evaluates_the_final_version_and_the_others_stop():
    asked, others = completed().did(ev.StopSent)
    assert (asked.peers, asked.evaluate_seconds) == ({A}, 60.0)
    assert (others.peers, others.evaluate_seconds) == ({B}, 0.0)


def test_everyone_stops_when_the_final_version_is_evaluated():
    machine = completed()
    assert not machine.do(ev.Evaluated(peer=A, version=0)).did(ev.StopSent)
    everyone = ev.StopSent(peers=None, reason="COMPLETE")
    assert machine.do(ev.Evaluated(peer=A, version=1)).did(ev.StopSent) == [everyone]
    assert not machine.tick(100).did(ev.StopSent)


@pytest.mark.parametrize(
    "lost", [ev.Disconnected(peer=A), ev.Joined(peer=A), ev.Left(peer=A, reason="interrupted")]
)
def test_the_next_peer_is_asked_when_the_one_that_evaluates_is_lost(lost):
    (asked,) = completed().do(lost, after=15).did(ev.StopSent)
    assert (asked.peers, asked.evaluate_seconds) == ({B}, 45.0)


def test_without_a_peer_the_server_gives_up_the_last_evaluation():
    machine = completed().do(ev.Disconnected(peer=B)).do(ev.Disconnected(peer=A))
    assert not machine.tick(59).did(ev.StopSent)
    assert machine.tick(1).did(ev.StopSent) == [ev.StopSent(peers=None, reason="COMPLETE")]


def test_peer_that_comes_back_in_time_evaluates_the_final_version():
    machine = completed().do(ev.Disconnected(peer=B)).do(ev.Disconnected(peer=A))
    (asked,) = machine.do(ev.Heard(peer=B, version=0), after=20).did(ev.StopSent)
    assert (asked.peers, asked.evaluate_seconds) == ({B}, 40.0)


def test_without_held_out_text_everyone_stops_at_once():
    everyone = ev.StopSent(peers=None, reason="COMPLETE")
    assert completed(evaluate=False).did(ev.StopSent) == [everyone]
