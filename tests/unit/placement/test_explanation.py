"""The sentences that go with a placement."""

from spes_operator.placement.decision import Candidate
from spes_operator.placement.explanation import shortage
from spes_operator.placement.placement import place


def candidate(peer, capacity, rate=1.0):
    return Candidate(peer=peer, capacity=capacity, rate=rate)


def reasons(candidates, owners=None, num_experts=4):
    return place(num_experts, candidates, owners=owners or {}, routed_tokens={}).reasons


def test_every_peer_and_every_move_has_a_sentence():
    assert reasons(
        [candidate("a.0", 8), candidate("b.0", 1, None), candidate("c.0", 0), candidate("d.0", -1)],
        owners={0: "a.0", 1: "a.0", 2: "gone.0"},
    ) == (
        "a.0 owns 3 of 4 experts: its share by speed is 3.00, its memory holds 8",
        "b.0 owns 1 of 4 experts: all that its memory holds (1); its speed is not measured yet",
        "c.0 owns no expert: its memory has room for the shared parameters only",
        "d.0 owns no expert: its memory cannot hold the model",
        "expert 2 moves from gone.0 to a.0: gone.0 is gone",
        "expert 3 goes to b.0: it had no owner",
    )


def test_a_move_for_balance_names_the_share():
    (*_, move) = reasons(
        [candidate("a.0", 9), candidate("b.0", 9)], owners={0: "a.0", 1: "a.0"}, num_experts=2
    )
    assert move == "expert 1 moves from a.0 to b.0: a.0 had more than its share of 1.00"


def test_parked_experts_are_named():
    assert reasons([candidate("a.0", 2)])[-1] == (
        "experts 0-1 are parked: the peers have memory for 2 of 4"
    )


def test_a_shortage_gives_the_numbers():
    assert shortage(8, [candidate("b.0", 3), candidate("a.0", 4), candidate("c.0", -1)]) == (
        "8 experts need an owner, but the peers have memory for 7 (a.0 4, b.0 3, c.0 0); "
        "add members or memory, or take a smaller model"
    )
    assert shortage(7, [candidate("b.0", 3), candidate("a.0", 4)]) is None
    assert "(no peers)" in shortage(1, [])
