"""Rounds that close with their first pushes, and how far they leave anybody behind."""

from __future__ import annotations

import pytest
from builders.sync_rounds import A, B, C, D, Machine, opened, push
from spes_proto.v1 import sync_pb2
from spes_sync.gates import JobId, judge
from spes_sync.rounds import Buffer, Phase
from spes_sync.rounds import events as ev


def buffered(*peers, size: int | None = 2, max_staleness: int = 4) -> Machine:
    return opened(*peers, buffer=Buffer(size=size, max_staleness=max_staleness))


def next_version(machine: Machine, *peers) -> Machine:
    """These push, and the version is committed; all are heard of meanwhile."""
    for peer in peers:
        machine.verify(peer)
    assert machine.state.phase is Phase.CLOSING
    machine.do(ev.Committed(global_tokens=machine.state.global_tokens + 1))
    return machine.hear(A, B, C, D)


def test_the_first_pushes_make_a_version_and_the_others_go_on():
    machine = buffered(A, B, C, D)
    assert machine.verify(A).state.phase is Phase.OPEN
    assert machine.verify(C).state.phase is Phase.CLOSING
    machine.do(ev.Committed(global_tokens=1))
    assert machine.state.round.expected == {A, B, C, D}
    assert {p: machine.state.peers[p].missed for p in (A, B, C, D)} == {A: 0, B: 1, C: 0, D: 1}


@pytest.mark.parametrize(
    ("size", "num_expected", "needed"),
    [(None, 1, 1), (None, 4, 2), (None, 5, 3), (2, 4, 2), (9, 4, 4)],
)
def test_a_buffer_holds_half_of_the_peers_or_what_was_asked_for(size, num_expected, needed):
    assert Buffer(size=size, max_staleness=4).size_of(num_expected) == needed


def test_half_a_push_fills_no_buffer():
    machine = buffered(A, B, C)
    machine.verify(A, push(experts=[0], part=sync_pb2.EXPERTS))
    machine.verify(B, push(experts=[1], part=sync_pb2.EXPERTS))
    assert machine.state.phase is Phase.OPEN


def test_a_version_waits_for_who_has_missed_as_many_as_it_may():
    machine = buffered(A, B, C, D, max_staleness=2)
    for _ in range(2):
        next_version(machine, A, B)
    assert machine.state.peers[C].missed == machine.state.peers[D].missed == 2
    assert machine.verify(A).verify(B).state.phase is Phase.OPEN
    assert machine.verify(C).state.phase is Phase.OPEN
    assert machine.verify(D).state.phase is Phase.CLOSING


def test_nobody_waits_longer_than_to_the_deadline():
    machine = buffered(A, B, C, max_staleness=1)
    next_version(machine, A, B)
    machine.verify(A).verify(B)
    machine.tick(30).hear(A, B, C)
    assert machine.tick(31).state.phase is Phase.CLOSING


def test_a_buffer_that_is_not_full_is_a_version_at_the_deadline():
    machine = buffered(A, B, C, size=3).verify(A)
    machine.tick(30).hear(A, B, C)
    assert machine.tick(31).state.phase is Phase.CLOSING


def test_without_staleness_every_version_waits_for_all():
    machine = buffered(A, B, C, size=1, max_staleness=0)
    assert machine.verify(A).verify(B).state.phase is Phase.OPEN
    assert machine.verify(C).state.phase is Phase.CLOSING


def test_who_is_gone_holds_no_version_up():
    machine = buffered(A, B, C, max_staleness=1)
    next_version(machine, A, B)
    machine.verify(A).verify(B)
    assert machine.do(ev.Left(peer=C, reason="x")).state.phase is Phase.CLOSING


def test_a_new_process_has_missed_nothing():
    machine = next_version(buffered(A, B, C), A, B)
    machine.do(ev.Joined(peer=C))
    assert machine.state.peers[C].missed == 0


def test_a_peer_in_a_long_step_is_counted_on_as_far_as_it_may_be_behind():
    machine = buffered(A, B, C, max_staleness=2)
    for _ in range(2):
        machine.verify(A).verify(B)
        machine.do(ev.Committed(global_tokens=1))
        machine.hear(A, B)  # C trains on the first version
        machine.do(ev.Heard(peer=C, version=0))
    assert C in machine.state.round.expected


def header(staleness: int) -> sync_pb2.PushHeader:
    key = sync_pb2.PushKey(
        job_uid="job", incarnation=1, peer=A, round=1, base_version=0, epoch=1, part=sync_pb2.ALL
    )
    return sync_pb2.PushHeader(key=key, kind=sync_pb2.DELTA, staleness=staleness)


@pytest.mark.parametrize(("staleness", "is_taken"), [(0, True), (4, True), (5, False)])
def test_what_is_too_stale_is_not_taken_in(staleness, is_taken):
    state = buffered(A, B).state
    reply = judge(state, header(staleness), A, JobId(uid="job", incarnation=1))
    assert (reply is None) == is_taken
    if reply is not None:
        assert (reply.verdict, reply.reason) == (sync_pb2.REBASE, sync_pb2.OLD_BASE)
        assert "missed 5 versions (at most 4)" in reply.detail


def test_rounds_that_wait_for_all_take_what_was_carried_over_one():
    state = opened(A, B).state
    assert judge(state, header(1), A, JobId(uid="job", incarnation=1)) is None
