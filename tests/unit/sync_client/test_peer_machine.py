"""The peer's decisions: events in, one action out. How it joins, trains its rounds and ends."""

from __future__ import annotations

from builders.peer_events import ME, OTHER, committed, opened, plan, stepped
from builders.peer_machines import MINE, SHA, cadence, in_round, push, rebase, train
from spes_proto.v1 import sync_pb2
from spes_sync.client.actions import (
    Adopt,
    CatchUp,
    Evaluate,
    Exit,
    Push,
    Rebase,
    Save,
    Seed,
    Step,
    Wait,
)
from spes_sync.client.machine import PeerMachine


def test_a_new_peer_pulls_announces_itself_and_waits():
    machine = PeerMachine(ME, cadence(), owned={})
    machine.observe(plan({}, peers=()))
    machine.observe(committed(5))
    assert machine.next(0) == Rebase(have=-1, latest=5)
    rebase(machine, 5)
    assert machine.next(0) == Save()
    machine.saved()
    assert machine.next(0) == CatchUp(version=5)
    machine.announced()
    assert machine.next(0) == Wait()


def test_the_peer_that_is_asked_seeds_and_then_takes_version_0():
    machine = PeerMachine(ME, cadence(), owned={})
    machine.observe(sync_pb2.ServerEvent(seed_wanted=sync_pb2.SeedWanted()))
    assert machine.next(0) == Seed()
    machine.seeded()
    assert machine.next(0) == Wait()
    machine.observe(committed(0))
    assert machine.next(0) == Rebase(have=-1, latest=0)


def test_a_model_from_a_lost_volume_is_seeded_again_as_version_0():
    machine = PeerMachine(ME, cadence(), version=17, owned={})
    machine.observe(sync_pb2.ServerEvent(seed_wanted=sync_pb2.SeedWanted()))
    assert machine.next(0) == Seed()
    machine.seeded()
    machine.observe(committed(0))
    assert machine.next(0) == Rebase(have=-1, latest=0)


def test_versions_that_the_server_lost_are_replaced_in_full():
    machine = in_round(number=18)
    train(machine, 1)
    machine.connected(17)
    machine.observe(committed(3))
    assert machine.next(0) == Rebase(have=-1, latest=3)
    assert rebase(machine, 3).carried == set()


def test_what_followed_the_base_is_no_sign_of_lost_versions():
    machine = PeerMachine(ME, cadence(), version=2, owned={})
    machine.observe(committed(9))
    machine.connected(2)
    machine.observe(committed(3))  # the greeting says what became of a push, then the latest
    assert machine.next(0) == Rebase(have=2, latest=9)


def test_a_seed_that_is_not_needed_any_more_is_not_pushed():
    machine = PeerMachine(ME, cadence(), owned={})
    machine.observe(sync_pb2.ServerEvent(seed_wanted=sync_pb2.SeedWanted()))
    machine.observe(committed(0))
    assert machine.next(0) == Rebase(have=-1, latest=0)


def test_a_round_is_h_steps_and_a_push():
    machine = in_round()
    train(machine, 2)
    assert push(machine) == Push(round=1, base_version=0, epoch=1)
    assert machine.next(0) == Wait()


def test_experts_are_taken_over_when_the_round_opens():
    machine = PeerMachine(ME, cadence(), version=0, owned={})
    machine.observe(plan(MINE))
    machine.announced()
    assert machine.next(0) == Wait()
    machine.observe(opened(1))
    assert machine.next(0) == Adopt(owned={0: 1}, gained=(0,), lost=())


def test_steps_take_the_leased_sequences_in_order():
    machine = in_round()
    first = machine.next(0)
    machine.stepped(stepped())
    second = machine.next(0)
    assert [first.position.sequences, second.position.sequences] == [(1000, 1001), (1002, 1003)]


def test_the_schedule_runs_in_tokens_of_all_expected_peers():
    machine = in_round(global_tokens=640, num_expected=3)
    train(machine, 1)
    assert machine.next(0).position.global_tokens == 640 + 1 * 8 * 3


def test_seconds_end_a_round_that_steps_would_not():
    machine = in_round(rules=cadence(every_steps=100, every_seconds=10))
    train(machine, 1, now=0)
    train(machine, 1, now=9.9)
    assert isinstance(machine.next(10), Push)


def test_a_round_has_at_least_one_step():
    machine = in_round(rules=cadence(every_steps=None, every_seconds=10))
    machine.next(0)
    assert isinstance(machine.next(1000), Step)


def test_a_used_up_lease_ends_the_round_early():
    machine = in_round(rules=cadence(every_steps=None, every_seconds=10), sequences=3)
    train(machine, 1)
    assert isinstance(machine.next(0), Push)


def test_the_served_model_is_evaluated_before_the_first_step():
    machine = in_round(evaluate=True)
    assert machine.next(0) == Evaluate(version=0)
    machine.evaluated(0)
    assert isinstance(machine.next(0), Step)


def stop(**fields) -> sync_pb2.ServerEvent:
    return sync_pb2.ServerEvent(stop=sync_pb2.Stop(reason="COMPLETE", **fields))


def pushed_last(**stop_fields) -> PeerMachine:
    """Its push is in the last version, and the server has said Stop."""
    machine = in_round()
    train(machine, 2)
    push(machine)
    machine.observe(committed(1, (ME, SHA), (OTHER, "b" * 64)))
    machine.observe(stop(**stop_fields))
    return machine


def test_the_last_version_is_evaluated_before_the_end():
    machine = pushed_last(evaluate_seconds=60)
    rebase(machine, 1)
    assert machine.next(1) == Evaluate(version=1)
    machine.evaluated(1)
    assert machine.next(2) == Wait()  # until the server has it
    machine.observe(stop())
    assert machine.next(3) == Exit(reason="COMPLETE")


def test_a_peer_that_is_not_asked_to_evaluate_stops_at_once():
    assert pushed_last().next(0) == Exit(reason="COMPLETE")


def test_the_last_evaluation_is_not_waited_for_beyond_its_time():
    machine = pushed_last(evaluate_seconds=60)
    assert isinstance(machine.next(100), Rebase)
    assert isinstance(machine.next(159), Rebase)
    assert machine.next(160) == Exit(reason="COMPLETE")


def test_a_peer_that_is_told_to_go_leaves_the_last_evaluation_to_others():
    machine = pushed_last(evaluate_seconds=60)
    machine.interrupted(5)
    assert machine.next(0) == Exit(reason="COMPLETE")
