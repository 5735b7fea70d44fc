"""Nothing counts twice, nothing is lost without a reason, whatever happens on the way."""

from __future__ import annotations

from collections import Counter

from builders.sync_simulator import ANSWER_LOST, ARRIVES, LOST, REFUSED, Simulation
from hypothesis import given, settings
from hypothesis import strategies as st

PEERS, EXPERTS = 3, 4
peers = st.integers(0, PEERS - 1)
pushes = st.sampled_from([ARRIVES, ARRIVES, ARRIVES, ANSWER_LOST, LOST, REFUSED])

events = st.one_of(
    st.tuples(st.just("act"), peers, st.integers(1, 500), pushes, st.booleans()),
    st.tuples(st.just("hear"), peers),
    st.tuples(st.just("reconnect"), peers),
    st.tuples(st.just("round"), peers, st.integers(1, 500)),
    st.tuples(st.just("commit")),
    st.tuples(st.just("open")),
    st.tuples(st.just("reopen")),
    st.tuples(st.just("move"), st.integers(0, EXPERTS - 1), peers),
    st.tuples(st.just("restart"), peers),
    st.tuples(st.just("remove"), peers),
    st.tuples(st.just("place_again"), peers),
)


def play(run: Simulation, event: tuple) -> None:
    match event:
        case ("act", index, amount, push_goes, full_pull):
            run.peers[index].do_next(amount=amount, push_goes=push_goes, full_pull=full_pull)
        case ("hear", index):
            run.peers[index].hear()
        case ("reconnect", index):
            run.peers[index].connect()
        case ("round", index, amount):  # hears all, and does what there is to do
            run.peers[index].hear()
            for _ in range(8):
                run.peers[index].do_next(amount=amount, push_goes=ARRIVES, full_pull=False)
        case (name, *arguments):
            getattr(run, name)(*arguments)


def check_nothing_is_lost_or_counts_twice(run: Simulation) -> None:
    ledger, held = run.server.ledger, Counter()
    for peer in run.peers:
        held.update(peer.held)
    for name, stepped in ledger.stepped.items():
        assert stepped == ledger.counted[name] + held[name] + ledger.dropped[name], name
    for name, value in run.server.served.items():
        assert int(value[0]) == ledger.counted[name], name


@settings(max_examples=1500, deadline=None)
@given(history=st.lists(events, max_size=60))
def test_local_steps_are_in_the_model_or_held_or_dropped_with_a_reason(history):
    run = Simulation(PEERS, EXPERTS)
    for event in history:
        play(run, event)
    run.finish()
    check_nothing_is_lost_or_counts_twice(run)


@settings(max_examples=300, deadline=None)
@given(amounts=st.lists(st.integers(1, 500), min_size=1, max_size=6))
def test_without_accidents_every_step_is_in_the_model(amounts):
    run = Simulation(PEERS, EXPERTS)
    for amount in amounts:
        run.open()
        for index in range(PEERS):
            play(run, ("round", index, amount))
        run.commit()
    run.finish()
    assert run.server.version == len(amounts)
    assert run.server.ledger.counted == run.server.ledger.stepped
    assert not any(run.server.ledger.dropped.values())
