"""Nothing counts twice, nothing is lost without a reason, whatever happens on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from builders.sim_server import Link, amount_of
from builders.sync_simulator import (
    ANSWER_LOST,
    ARRIVES,
    LOST,
    REFUSED,
    SimPeer,
    Simulation,
)
from builders.toy_learner import PSI
from hypothesis import given, settings
from hypothesis import strategies as st
from spes_sync.client.actions import Push, Step, Wait
from spes_sync.quantize import Codec

PEERS, EXPERTS = 3, 3
peers = st.integers(0, PEERS - 1)
pushes = st.sampled_from([ARRIVES, ARRIVES, ARRIVES, ANSWER_LOST, LOST, REFUSED])

amounts = st.integers(1, 500)

# Small things that go wrong, and whole rounds in which one peer is late: only both together lead
# far enough to meet every rule.
accidents = st.one_of(
    st.tuples(st.just("act"), peers, amounts, pushes, st.booleans()),
    st.tuples(st.just("hear"), peers),
    st.tuples(st.just("connect"), peers),
    st.tuples(st.just("commit")),
    st.tuples(st.just("open")),
    st.tuples(st.just("reopen")),
    st.tuples(st.just("move"), st.integers(0, EXPERTS - 1), peers),
    st.tuples(st.just("move"), st.just(0), st.just(0)),  # lost and regained at once
    st.tuples(st.just("restart"), peers),
    st.tuples(st.just("remove"), peers),
    st.tuples(st.just("place_again"), peers),
)
late_rounds = st.tuples(st.just("late round"), peers, st.integers(0, 2), amounts)
moved_rounds = st.tuples(st.just("moved round"), st.integers(0, EXPERTS - 1), peers, amounts)
histories = st.lists(st.one_of(accidents, late_rounds, late_rounds, moved_rounds), max_size=25)


def play(run: Simulation, event: tuple) -> None:
    match event:
        case ("act", index, amount, push_goes, full_pull):
            run.peers[index].do_next(amount=amount, push_goes=push_goes, full_pull=full_pull)
        case ("hear" | "connect", index):
            getattr(run.peers[index], event[0])()
        case ("late round", late, num_steps, amount):
            play_late_round(run, late, num_steps, amount)
        case ("moved round", expert, to, amount):
            play_moved_round(run, expert, to, amount)
        case (name, *arguments):
            getattr(run, name)(*arguments)


def play_late_round(run: Simulation, late: int, num_steps: int, amount: int) -> None:
    """All but one push."""
    run.open()
    for index, peer in enumerate(run.peers):
        if index == late:
            train_some(peer, num_steps, amount)
        else:
            play_round(peer, amount)
    run.commit()


def play_moved_round(run: Simulation, expert: int, to: int, amount: int) -> None:
    """All push; the round is held, and opened again under a plan that moves an expert."""
    run.open()
    for peer in run.peers:
        play_round(peer, amount)
    run.move(expert, to)
    run.reopen()
    run.commit()


def play_round(peer: SimPeer, amount: int) -> None:
    """The peer hears all there is and does what there is to do."""
    peer.hear()
    for _ in range(8):
        if isinstance(peer.do_next(amount=amount, push_goes=ARRIVES, full_pull=False), Wait):
            return


def train_some(peer: SimPeer, num_steps: int, amount: int) -> None:
    """The peer hears all there is, but comes no further than so many steps."""
    peer.hear()
    for _ in range(8):
        waits = num_steps == 0 and isinstance(peer.machine.next(0), Step)
        if waits or isinstance(peer.machine.next(0), Push | Wait):
            return
        action = peer.do_next(amount=amount, push_goes=ARRIVES, full_pull=False)
        num_steps -= isinstance(action, Step)


def check_nothing_is_lost_or_counts_twice(run: Simulation) -> None:
    ledger, kept = run.server.ledger, Counter()
    for peer in run.peers:
        kept.update(peer.held)
        kept.update(peer.book.owed)
        peer.check_owed()
    for name, stepped in ledger.stepped.items():
        assert stepped == ledger.counted[name] + kept[name] + ledger.dropped[name], name
    for name, value in run.server.served.items():
        owed = amount_of(run.server.owed) if name == PSI else 0
        assert amount_of(value) + owed == ledger.counted[name], name


@contextmanager
def link(codec: Codec) -> Iterator[Link]:
    with TemporaryDirectory() as directory:
        yield Link(codec=codec, directory=Path(directory))


def play_out(history: list[tuple], codec: Codec, *, max_missed: int = 1) -> None:
    with link(codec) as both_ways:
        run = Simulation(both_ways, PEERS, EXPERTS, max_missed=max_missed)
        run.finish()  # all have caught up
        for event in history:
            play(run, event)
        run.finish()
        check_nothing_is_lost_or_counts_twice(run)


@pytest.mark.timeout(300)  # a thousand histories
@settings(max_examples=1000, deadline=None)
@given(history=histories)
def test_local_steps_are_in_the_model_or_held_or_dropped_with_a_reason(history):
    play_out(history, Codec.FP32)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("max_missed", [0, 4])
@settings(max_examples=150, deadline=None)
@given(history=histories)
def test_the_same_holds_however_many_versions_work_may_miss(history, max_missed):
    play_out(history, Codec.FP32, max_missed=max_missed)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("codec", [Codec.BF16, Codec.INT8, Codec.UINT8], ids=str)
@settings(max_examples=100, deadline=None)
@given(history=histories)
def test_what_a_codec_drops_is_owed_until_it_is_paid(history, codec):
    play_out(history, codec)


@pytest.mark.parametrize("codec", Codec, ids=str)
@settings(max_examples=20, deadline=None)
@given(amounts=st.lists(st.integers(1, 500), min_size=1, max_size=6))
def test_without_accidents_every_step_is_in_the_model_or_owed(amounts, codec):
    with link(codec) as both_ways:
        run = Simulation(both_ways, PEERS, EXPERTS)
        for amount in amounts:
            run.open()
            for index in range(PEERS):
                play_round(run.peers[index], amount)
            run.commit()
        run.finish()
        check_nothing_is_lost_or_counts_twice(run)
    assert run.server.version == len(amounts)
    assert not any(run.server.ledger.dropped.values())
    if codec is Codec.FP32:
        assert run.server.ledger.counted == run.server.ledger.stepped
