"""The round table, row by row."""

from __future__ import annotations

import pytest
from builders.sync_rounds import A, B, C, D, Machine, opened, plan, push, rules, waiting
from spes_proto.v1 import sync_pb2
from spes_sync.rounds import Phase, State
from spes_sync.rounds import events as ev


def applied(machine: Machine, epoch: int, owners: dict[int, str], **granted: dict) -> Machine:
    return machine.do(
        ev.PlanApplied(plan=plan(epoch, owners, **granted), rules=machine.state.rules)
    )


# Seeding, Waiting.


def test_seed_peer_is_asked_with_every_plan_until_it_seeds():
    machine = Machine(State(rules=rules()))
    for _ in range(2):
        machine.do(ev.PlanApplied(plan=plan(0, {}), rules=rules(), seed_peer=A))
        assert machine.did(ev.SeedNeeded) == [ev.SeedNeeded(peer=A)]


def test_seed_makes_version_0():
    machine = Machine(State(rules=rules())).do(ev.Seeded())
    assert (machine.state.phase, machine.state.version) == (Phase.WAITING, 0)


def test_nobody_is_caught_up_before_version_0():
    machine = Machine(State(rules=rules())).do(ev.CaughtUp(peer=A, version=-1))
    assert not machine.state.peers[A].caught_up


def test_round_opens_when_all_placed_peers_are_live():
    machine = opened(A, B)
    assert machine.state.phase is Phase.OPEN
    assert machine.state.round.expected == {A, B}
    assert machine.did(ev.Opened)
    assert machine.did(ev.PlanChanged) == [ev.PlanChanged(peers=None)]


def test_round_waits_for_a_placed_peer_that_may_still_come():
    machine = applied(waiting(A), 1, {0: A, 1: B})
    assert machine.tick(39).state.phase is Phase.WAITING
    machine.hear(A)
    assert machine.tick(2).state.round.expected == {A}


def test_round_does_not_open_below_min_members():
    machine = applied(waiting(A, min_members=2), 1, {0: A})
    assert machine.state.phase is Phase.WAITING


def test_peer_that_said_goodbye_is_not_waited_for():
    machine = waiting(A, B)
    machine.do(ev.Left(peer=B, reason="interrupted"))
    assert applied(machine, 1, {0: A, 1: B}).state.round.expected == {A}


def test_candidate_is_not_expected():
    assert applied(waiting(A, B), 1, {0: A}).state.round.expected == {A}


@pytest.mark.parametrize(("version", "expected"), [(7, True), (6, True), (5, False), (8, False)])
def test_ready_peer_holds_the_last_version_or_the_one_before(version, expected):
    machine = waiting(A, B)
    machine.do(ev.Heard(peer=B, version=version))
    state = machine.state
    assert state.peers[B].ready(machine.now, state.rules, version=7) is expected


def test_peer_is_not_ready_before_it_caught_up_since_its_join():
    machine = waiting(A, B).do(ev.Joined(peer=B)).hear(B)
    assert applied(machine, 1, {0: A, 1: B}).state.round.expected == {A}


def test_plan_stays_pending_while_a_round_is_open():
    machine = applied(opened(A, B), 2, {0: A, 1: B, 2: B})
    assert machine.state.active.epoch == machine.state.round.plan.epoch == 1
    assert not machine.did(ev.PlanChanged)


# Open.


def test_all_pushed_closes():
    machine = opened(A, B).verify(A)
    assert machine.state.phase is Phase.OPEN
    assert machine.verify(B).state.phase is Phase.CLOSING
    assert machine.did(ev.CommitWanted)


def test_refusal_that_a_retransmission_mends_keeps_the_peer_expected():
    machine = opened(A, B).do(ev.Refused(peer=A, reason="TRUNCATED", again=True))
    assert machine.state.round.expected == {A, B}
    assert not machine.did(ev.LeasesReturned)


def test_any_other_refusal_costs_the_round_and_the_leases():
    machine = opened(A, B).verify(B).do(ev.Refused(peer=A, reason="NOT_FINITE", again=False))
    assert machine.did(ev.LeasesReturned) == [ev.LeasesReturned(peer=A)]
    assert machine.state.phase is Phase.CLOSING
    assert machine.state.round.expected == {B}


def test_leaving_without_a_push_leaves_the_round():
    machine = opened(A, B).verify(B).do(ev.Left(peer=A, reason="interrupted"))
    assert machine.state.phase is Phase.CLOSING
    assert machine.state.round.expected == {B}


def test_leaving_after_a_push_counts():
    machine = opened(A, B).verify(A).do(ev.Left(peer=A, reason="interrupted"))
    assert machine.state.round.expected == {A, B}
    assert machine.verify(B).state.round.pushes.keys() == {A, B}


def test_final_in_parts_is_awaited_until_the_shared_part_or_goodbye():
    experts = push(part=sync_pb2.EXPERTS, experts=[0], final=True)
    machine = opened(A, B).verify(B).verify(A, experts)
    assert machine.state.phase is Phase.OPEN
    assert machine.do(ev.Left(peer=A, reason="interrupted")).state.phase is Phase.CLOSING
    assert machine.state.round.expected == machine.state.round.pushes.keys() == {A, B}


def test_silence_after_a_part_of_a_push_leaves_the_peer_expected():
    experts = push(part=sync_pb2.EXPERTS, experts=[0], final=True)
    machine = opened(A, B).verify(A, experts).tick(39).hear(B).tick(1)
    assert machine.state.round.expected == {A, B}
    assert machine.state.round.awaited == {B}


def test_peer_after_its_final_push_is_not_expected_again():
    machine = opened(A, B).verify(A, push(final=True)).verify(B)
    machine.do(ev.Committed(global_tokens=20))
    assert machine.state.round.expected == {B}


def test_removed_peer_leaves_at_once_and_is_told():
    machine = applied(opened(A, B).verify(B), 2, {0: B, 1: B})
    assert machine.did(ev.PlanChanged) == [ev.PlanChanged(peers=frozenset({A}))]
    assert machine.did(ev.LeasesReturned) == [ev.LeasesReturned(peer=A)]
    assert machine.state.phase is Phase.CLOSING
    assert machine.state.plan_for(A).epoch == 2


def test_removed_peers_verified_push_counts_under_the_rounds_plan():
    machine = applied(opened(A, B).verify(A, push(experts=[0])), 2, {0: B, 1: B})
    closing = machine.verify(B).state.round
    assert closing.pushes.keys() == {A, B}
    assert closing.counted(A, closing.pushes[A][0]) == (0,)


def test_silent_peer_leaves_the_round():
    machine = opened(A, B).tick(30).hear(B).verify(B)
    assert machine.tick(10).state.phase is Phase.CLOSING
    assert machine.did(ev.Dropped) == [ev.Dropped(peer=A, reason="silent")]


def test_one_of_four_is_waited_for_until_it_counts_as_silent_and_no_longer():
    machine = opened(A, B, C, D, timeout=60.0).tick(5).hear(D).tick(25).hear(A, B, C)
    for peer in (A, B, C):
        machine.verify(peer)
    assert machine.tick(14.9).state.phase is Phase.OPEN
    assert machine.tick(0.1).state.phase is Phase.CLOSING  # D was heard 40 s ago
    assert set(machine.state.round.pushes) == {A, B, C}


def test_silence_counts_though_the_stream_looks_open():
    machine = opened(A, B).tick(39).hear(B)
    assert machine.state.peers[A].connected
    assert machine.tick(1).state.round.expected == {B}


def test_silenced_process_is_expected_again_when_heard():
    machine = opened(A, B, timeout=500.0).tick(39).hear(B).tick(1)
    assert machine.hear(A).state.round.expected == {A, B}


def test_new_process_is_not_expected_again_in_this_round():
    machine = opened(A, B, timeout=500.0).tick(39).hear(B).tick(1).do(ev.Joined(peer=A))
    assert machine.hear(A).state.round.expected == {B}


def test_join_means_a_new_process_and_its_leases_return():
    machine = opened(A, B).do(ev.Joined(peer=A))
    assert machine.state.round.expected == {B}
    assert machine.did(ev.LeasesReturned) == [ev.LeasesReturned(peer=A)]


def test_join_after_a_verified_push_keeps_the_push():
    machine = opened(A, B).verify(A).do(ev.Joined(peer=A))
    assert machine.state.round.expected == {A, B}


def test_deadline_with_enough_pushes_closes_and_names_who_missed_it():
    machine = opened(A, B, C, unreachable_after=100.0).verify(A).verify(B)
    assert machine.tick(60).state.phase is Phase.CLOSING
    assert machine.did(ev.Dropped) == [ev.Dropped(peer=C, reason="missed the deadline")]


def test_deadline_with_too_few_pushes_holds_and_names_who_is_missing():
    machine = opened(A, B, C, unreachable_after=100.0).verify(A).tick(60)
    assert machine.state.phase is Phase.HELD
    assert "1 of 2 needed" in machine.state.problem
    assert "b.0, c.0" in machine.state.problem


# Held.


def held(*peers, pushed=(A,)) -> Machine:
    machine = opened(*peers, unreachable_after=100.0)
    for peer in pushed:
        machine.verify(peer)
    return machine.tick(60)


def test_held_round_closes_with_one_more_push():
    assert held(A, B, C).verify(B).state.phase is Phase.CLOSING


def test_held_round_closes_when_silence_makes_the_pushes_enough():
    machine = held(A, B, C)
    assert machine.tick(40).state.phase is Phase.CLOSING


def test_held_round_reopens_when_the_plan_changes():
    machine = held(A, B, C).hear(A, B)
    machine.do(ev.CaughtUp(peer=D, version=0))
    applied(machine, 2, {0: A, 1: B, 2: D})
    assert machine.state.phase is Phase.OPEN
    assert machine.state.round.expected == {A, B, D}
    assert (machine.state.round.base, machine.state.round.plan.epoch) == (0, 2)
    assert machine.state.round.deadline == machine.now + 60
    assert machine.did(ev.Opened) == [ev.Opened(reopened=True)]


def test_reopened_round_closes_if_all_the_new_expected_have_pushed():
    assert applied(held(A, B, C), 2, {0: A}).state.phase is Phase.CLOSING


def test_reopened_round_keeps_pushes_less_experts_whose_owner_changed():
    machine = opened(A, B, unreachable_after=100.0, quorum=1.0)
    machine.verify(A, push(experts=[0])).tick(60)
    applied(machine.hear(A, B), 2, {0: B, 1: B, 2: A}, granted={1: 1})
    reopened = machine.state.round
    assert reopened.counted(A, reopened.pushes[A][0]) == ()
    assert reopened.counted(B, push(1, experts=[0, 1])) == (1,)


def test_reopened_below_min_members():
    machine = opened(A, B, unreachable_after=100.0, min_members=2, quorum=1.0).tick(60)
    applied(machine.hear(A), 2, {0: A})
    assert (machine.state.phase, machine.state.round.expected) == (Phase.OPEN, {A})


def test_peer_that_is_away_at_the_reopening_is_expected_when_heard():
    machine = opened(A, B, C, unreachable_after=100.0, quorum=1.0).verify(A)
    machine.do(ev.Disconnected(peer=B)).tick(60)
    applied(machine, 2, {0: A, 1: B, 2: C, 3: A}, granted={0: 1, 1: 1, 2: 1})
    assert machine.state.round.expected == {A, C}
    assert machine.state.round.silenced == {B}
    assert machine.hear(B).state.round.expected == {A, B, C}


# Closing, Complete, and back.


def test_commit_opens_the_next_round():
    machine = opened(A, B).verify(A).verify(B).do(ev.Committed(global_tokens=20))
    assert (machine.state.version, machine.state.round.number) == (1, 2)
    assert machine.state.global_tokens == 20


def test_commit_that_reaches_max_tokens_completes():
    machine = opened(A).verify(A).do(ev.Committed(global_tokens=1000))
    assert machine.state.phase is Phase.COMPLETE
    assert machine.did(ev.Completed)


def test_full_disk_holds_and_is_tried_again_every_10_seconds():
    machine = opened(A).verify(A).do(ev.CommitFailed(problem="no space left for x"))
    assert machine.state.phase is Phase.HELD
    assert machine.did(ev.WasHeld) == [ev.WasHeld(problem="no space left for x")]
    assert machine.tick(9.9).state.phase is Phase.HELD
    assert machine.tick(0.1).state.phase is Phase.CLOSING
    machine.do(ev.CommitFailed(problem="no space left for x"))
    assert not machine.did(ev.WasHeld)


def test_nobody_left_and_nothing_pushed_makes_no_version():
    machine = opened(A, B).do(ev.Left(peer=A, reason="x")).do(ev.Left(peer=B, reason="x"))
    assert (machine.state.phase, machine.state.version) == (Phase.WAITING, 0)
    assert machine.did(ev.GivenUp) == [ev.GivenUp(number=1)]


def test_round_given_up_returns_leases_of_the_silenced_too():
    machine = opened(A, B).tick(40)
    assert machine.state.phase is Phase.WAITING
    assert {e.peer for e in machine.did(ev.LeasesReturned)} == {A, B}


# Drain.


def test_drained_peer_is_stopped_once_the_plan_has_let_it_go():
    machine = opened(A, B).do(ev.DrainAsked(peers=frozenset({A}), grace=5))
    machine.verify(A, push(final=True)).do(ev.Left(peer=A, reason="drained"))
    assert not machine.did(ev.StopSent)
    applied(machine, 2, {0: B, 1: B})
    assert machine.did(ev.StopSent) == [ev.StopSent(peers=frozenset({A}), reason="DRAINED")]
    assert not machine.tick(1).did(ev.StopSent)


def test_draining_peer_is_not_expected_in_the_next_round():
    machine = opened(A, B).do(ev.DrainAsked(peers=frozenset({A}), grace=5)).verify(A).verify(B)
    machine.do(ev.Committed(global_tokens=20))
    assert machine.state.round.expected == {B}


def test_stop_ends_the_job_after_the_last_commit():
    machine = opened(A, B).do(ev.DrainAsked(peers=None, grace=5, stop="STOPPED"))
    machine.verify(A, push(final=True)).verify(B, push(final=True))
    machine.do(ev.Committed(global_tokens=20))
    assert machine.state.phase is Phase.WAITING
    assert machine.did(ev.StopSent) == [ev.StopSent(peers=None, reason="STOPPED")]


def test_stop_closes_with_whatever_came_within_the_grace():
    machine = opened(A, B, C).do(ev.DrainAsked(peers=None, grace=5, stop="STOPPED")).verify(A)
    assert machine.tick(5).state.phase is Phase.CLOSING


def test_stop_without_any_push_makes_no_version():
    machine = opened(A).do(ev.DrainAsked(peers=None, grace=5, stop="STOPPED")).tick(5)
    assert (machine.state.phase, machine.state.version) == (Phase.WAITING, 0)
    assert machine.did(ev.StopSent)


def test_gone_candidate_is_forgotten():
    machine = opened(A).hear(D).do(ev.Disconnected(peer=D))
    assert D in machine.state.peers
    assert D not in machine.hear(A).tick(40).state.peers


@pytest.mark.parametrize(
    ("quorum", "expected", "needed"),
    [(0.66, 3, 2), (0.66, 1, 1), (0.66, 0, 1), (0.07, 100, 7), (1.0, 4, 4), (0.01, 4, 1)],
)
def test_needed_pushes(quorum, expected, needed):
    assert rules(quorum=quorum).needed(expected) == needed
