"""The peer's decisions about its work: what is pushed, carried, dropped or handed over."""

from __future__ import annotations

import pytest
from builders.peer_events import ME, OTHER, committed, opened, plan, reply
from builders.peer_machines import SHA, cadence, in_round, push, rebase, train
from spes_proto.v1 import sync_pb2
from spes_sync.bases import Fate
from spes_sync.client.actions import (
    Adopt,
    Discard,
    Exit,
    Leave,
    Push,
    Save,
    Wait,
)
from spes_sync.client.machine import PeerMachine
from spes_sync.manifest import SHARED


def test_a_counted_push_starts_afresh_and_is_saved():
    machine = in_round()
    train(machine, 2)
    push(machine)
    machine.observe(committed(1, (ME, SHA), (OTHER, "b" * 64)))
    assert rebase(machine, 1) == Fate(included=True)
    assert machine.work.steps == 0
    assert machine.next(0) == Save()


def test_a_late_peer_carries_its_progress_and_does_the_rest_of_h():
    machine = in_round()
    train(machine, 1)
    machine.observe(committed(1, (OTHER, "b" * 64)))
    assert rebase(machine, 1).carried == {0, SHARED}
    machine.observe(opened(2))
    train(machine, 1)
    assert push(machine) == Push(round=2, base_version=1, epoch=1)


def test_a_late_peer_that_has_done_h_pushes_at_once():
    machine = in_round()
    train(machine, 2)
    push(machine, "REBASE", reason="OLD_BASE")
    assert machine.next(0) == Wait()
    machine.observe(committed(1))
    rebase(machine, 1)
    machine.observe(opened(2))
    assert isinstance(machine.next(0), Push)


def test_carried_progress_is_not_saved():
    machine = in_round()
    train(machine, 1)
    machine.observe(committed(1))
    rebase(machine, 1)
    assert machine.next(0) == Wait()


def test_shared_progress_is_carried_over_one_missed_commit_only():
    machine = in_round()
    train(machine, 1)
    machine.observe(committed(1))
    rebase(machine, 1)
    machine.observe(committed(2))
    assert rebase(machine, 2).carried == {0}


def test_two_commits_missed_at_once_leave_only_own_experts():
    machine = in_round()
    train(machine, 1)
    machine.observe(committed(1))
    machine.observe(committed(2))
    assert rebase(machine, 2).carried == {0}


@pytest.mark.parametrize(
    "owners", [{0: (OTHER, 2)}, {0: (ME, 3)}], ids=["lost", "lost and regained"]
)
def test_an_expert_that_moved_is_not_carried(owners):
    machine = in_round()
    train(machine, 1)
    machine.observe(committed(1))
    machine.observe(plan(owners, epoch=3))
    assert rebase(machine, 1).carried == {SHARED}


def test_an_expert_named_in_dropped_experts_is_not_carried():
    machine = in_round()
    train(machine, 2)
    push(machine, "PARTLY", reason="OLD_EPOCH", dropped_experts=[0])
    machine.observe(committed(1))
    assert rebase(machine, 1).carried == {SHARED}


def test_a_peer_out_of_the_plan_carries_nothing_and_gives_its_experts_back():
    machine = in_round()
    train(machine, 1)
    machine.observe(plan({}, epoch=2, peers=[OTHER]))
    assert machine.next(0) == Discard(reason="no longer in the plan", moments_too=False)
    machine.discarded()
    assert machine.next(0) == Adopt(owned={}, gained=(), lost=(0,))


def test_a_verified_push_of_a_removed_peer_is_waited_for():
    machine = in_round()
    train(machine, 2)
    push(machine)
    machine.observe(plan({}, epoch=2, peers=[OTHER]))
    assert machine.next(0) == Wait()
    machine.observe(committed(1, (ME, SHA)))
    assert rebase(machine, 1) == Fate(included=True)


def test_a_refused_push_drops_progress_and_waits_for_the_next_round():
    machine = in_round()
    train(machine, 2)
    push(machine, "REFUSED", reason="NOT_FINITE", detail="psi")
    assert machine.next(0) == Discard(reason="NOT_FINITE: psi", moments_too=True)
    machine.discarded()
    assert machine.next(0) == Wait()
    assert machine.work.steps == 0


def test_a_verified_push_is_offered_again_on_a_new_session():
    machine = in_round()
    train(machine, 2)
    first = push(machine)
    machine.connected(machine.version)
    assert machine.next(0) == first
    machine.pushed(first, reply("ALREADY_HAVE"))
    assert machine.next(0) == Wait()


def test_a_rebase_after_verified_leaves_it_to_the_commit():
    machine = in_round()
    train(machine, 2)
    first = push(machine)
    machine.connected(machine.version)
    machine.pushed(first, reply("REBASE"))
    machine.observe(committed(1, (ME, SHA)))
    assert rebase(machine, 1).included


def test_a_push_whose_answer_is_lost_may_still_count():
    machine = in_round()
    train(machine, 2)
    machine.offering(machine.next(0), SHA)
    machine.observe(committed(1, (ME, SHA)))
    assert rebase(machine, 1).included


def test_a_push_without_an_answer_is_offered_whole_when_leaving():
    machine = in_round()
    train(machine, 2)
    offered = machine.next(0)
    machine.offering(offered, SHA)
    machine.interrupted(10)
    leave = machine.next(0)
    assert (leave.push, leave.whole) == (offered, True)


def test_another_process_of_this_peer_counts_for_itself():
    machine = in_round()
    train(machine, 2)
    push(machine)
    machine.observe(committed(1, (ME, "c" * 64)))
    assert not rebase(machine, 1).included


def test_a_reopened_round_takes_lost_experts_and_keeps_the_work():
    machine = in_round()
    train(machine, 1)
    machine.observe(plan({0: (OTHER, 2), 1: (ME, 2)}, epoch=2))
    machine.observe(opened(1, epoch=2))
    assert machine.next(0) == Adopt(owned={}, gained=(), lost=(0,))
    machine.adopted({})
    train(machine, 1)
    assert push(machine) == Push(round=1, base_version=0, epoch=2)
    machine.observe(committed(1, (ME, SHA)))
    rebase(machine, 1)
    machine.saved()
    machine.observe(opened(2, epoch=2))
    assert machine.next(0) == Adopt(owned={1: 2}, gained=(1,), lost=())


def test_who_has_pushed_does_nothing_when_a_round_is_reopened():
    machine = in_round()
    train(machine, 2)
    push(machine)
    machine.observe(plan({1: (ME, 2)}, epoch=2))
    machine.observe(opened(1, epoch=2))
    assert machine.next(0) == Wait()


def test_a_restored_peer_keeps_experts_granted_as_before():
    machine = PeerMachine(ME, cadence(), version=4, owned={0: 1, 1: 1})
    machine.announced()
    assert machine.next(0) == Wait()  # no plan is known yet: nothing is given back
    machine.observe(plan({0: (ME, 1), 1: (ME, 3)}, epoch=3))
    machine.observe(opened(5, epoch=3))
    assert machine.next(0) == Adopt(owned={0: 1, 1: 3}, gained=(1,), lost=(1,))


def test_sigterm_hands_the_work_over_and_ends():
    machine = in_round()
    train(machine, 1)
    machine.interrupted(10)
    leave = machine.next(0)
    assert leave == Leave(
        grace_seconds=10, reason="interrupted", push=Push(round=1, base_version=0, epoch=1)
    )
    machine.left()
    assert machine.next(0) == Exit(reason="INTERRUPTED")


def test_work_that_no_open_round_takes_is_not_pushed_when_leaving():
    machine = in_round()
    train(machine, 2)
    push(machine)
    machine.interrupted(10)
    assert machine.next(0).push is None


def test_a_drained_peer_leaves_and_waits_for_stop():
    machine = in_round()
    machine.observe(sync_pb2.ServerEvent(drain=sync_pb2.Drain(grace_seconds=7)))
    assert machine.next(0) == Leave(grace_seconds=7, reason="drained", push=None)
    machine.left()
    assert machine.next(0) == Wait()
    machine.observe(sync_pb2.ServerEvent(stop=sync_pb2.Stop(reason="DRAINED", detail="bye")))
    assert machine.next(0) == Exit(reason="DRAINED", detail="bye")


def test_a_relaunched_peer_asks_what_became_of_its_last_push():
    machine = PeerMachine(ME, cadence(), version=2, owned={})
    assert machine.served.version_to_say(machine.version, None) == 2
    assert machine.served.version_to_say(machine.version, 1) == 2  # decided before
    assert machine.served.version_to_say(machine.version, 5) == 5
    machine.observe(committed(5))
    assert machine.served.version_to_say(machine.version, 5) == 5  # its round is still open
    machine.observe(committed(6))
    assert machine.served.version_to_say(machine.version, 5) == 2  # known


def test_a_peer_whose_last_push_is_lost_with_its_base_says_what_it_holds():
    machine = PeerMachine(ME, cadence(), version=2, owned={})
    machine.connected(5)
    machine.observe(committed(3))
    assert machine.served.version_to_say(machine.version, 5) == 2
