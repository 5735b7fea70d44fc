"""Coverage, fairness, fewest moves: properties of random cases, and the numbers of known ones."""

from collections import Counter
from fractions import Fraction
from itertools import product
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spes_operator.placement.decision import Candidate
from spes_operator.placement.placement import place
from spes_operator.placement.quota import effective_rates, fair_shares

RATES = st.one_of(st.none(), st.floats(0.01, 1e6), st.integers(1, 4).map(float))


def peers(rates, capacities=None, names="abcdefghijklmnopqrstuvwxyz"):
    """Candidates a, b, c ...; without capacities each can hold everything."""
    return [
        Candidate(
            peer=f"{name}.0", capacity=10_000 if capacities is None else capacities[i], rate=rate
        )
        for i, (name, rate) in enumerate(zip(names, rates, strict=False))
    ]


def start(num_experts, candidates):
    return place(num_experts, candidates, owners={}, routed_tokens={})


def counts(placement):
    return Counter(placement.owners.values())


@st.composite
def cases(draw, max_experts=24, max_peers=8):
    """A number of experts, candidates, and an earlier ownership with gone peers and orphans."""
    num_experts = draw(st.integers(1, max_experts))
    num_peers = draw(st.integers(1, max_peers))
    candidates = peers(
        draw(st.lists(RATES, min_size=num_peers, max_size=num_peers)),
        draw(st.lists(st.integers(-1, num_experts), min_size=num_peers, max_size=num_peers)),
    )
    names = st.sampled_from([one.peer for one in candidates] + ["gone.0", None])
    before = draw(st.lists(names, min_size=num_experts, max_size=num_experts))
    owners = {expert: owner for expert, owner in enumerate(before) if owner is not None}
    routed = {expert: draw(st.integers(0, 3)) for expert in range(num_experts)}
    return num_experts, candidates, owners, routed, draw(st.integers(0, 50))


def run(case, candidates=None):
    num_experts, given_candidates, owners, routed, rotation = case
    return place(
        num_experts,
        candidates or given_candidates,
        owners=owners,
        routed_tokens=routed,
        rotation=rotation,
    )


@given(case=cases())
def test_every_expert_is_owned_once_or_parked(case):
    num_experts, candidates, *_ = case
    placement = run(case)
    assert sorted([*placement.owners, *placement.parked]) == list(range(num_experts))
    places = sum(max(one.capacity, 0) for one in candidates)
    assert len(placement.parked) == max(0, num_experts - places)


@given(case=cases())
def test_counts_are_shares_rounded_down_or_up_within_memory(case):
    num_experts, candidates, *_ = case
    shares = fair_shares(num_experts, candidates, effective_rates(candidates))
    assert sum(shares.values()) == min(num_experts, sum(max(one.capacity, 0) for one in candidates))
    count = counts(run(case))
    for one in candidates:
        share = shares[one.peer]
        assert floor(share) <= count[one.peer] <= min(max(one.capacity, 0), ceil(share))


@given(case=cases())
def test_moves_equal_the_lower_bound_and_are_the_changes(case):
    _, _, owners, *_ = case
    placement = run(case)
    assert len(placement.moves) == placement.lower_bound
    changed = {one.expert: one.target for one in placement.moves}
    assert changed == {
        expert: owner for expert, owner in placement.owners.items() if owners.get(expert) != owner
    }
    assert all(one.source == owners.get(one.expert) for one in placement.moves)


@given(case=cases(max_experts=5, max_peers=3))
def test_no_assignment_within_the_shares_moves_fewer(case):
    num_experts, candidates, owners, *_ = case
    placement = run(case)
    shares = fair_shares(num_experts, candidates, effective_rates(candidates))
    placed = sorted(placement.owners)

    def allowed(assignment):
        count = Counter(assignment)
        return all(
            floor(shares[one.peer])
            <= count[one.peer]
            <= min(max(one.capacity, 0), ceil(shares[one.peer]))
            for one in candidates
        )

    fewest = min(
        sum(owners.get(expert) != owner for expert, owner in zip(placed, assignment, strict=True))
        for assignment in product([one.peer for one in candidates], repeat=len(placed))
        if allowed(assignment)
    )
    assert len(placement.moves) == fewest


@given(case=cases(), data=st.data())
def test_the_order_of_candidates_does_not_matter(case, data):
    shuffled = data.draw(st.permutations(case[1]))
    assert run(case, shuffled) == run(case)


@given(case=cases())
def test_placing_again_moves_nothing(case):
    num_experts, candidates, _, routed, rotation = case
    first = run(case)
    again = place(
        num_experts,
        candidates,
        owners=first.owners,
        routed_tokens=routed,
        rotation=rotation,
    )
    assert again.moves == ()
    assert again.owners == first.owners


def test_faster_peers_own_more_experts():
    placement = start(16, peers([4, 2, 1, 1], [8] * 4))
    assert counts(placement) == {"a.0": 8, "b.0": 4, "c.0": 2, "d.0": 2}
    assert placement.utilisation == 0.34375
    assert start(16, peers([1] * 4)).utilisation == 0.25


def test_one_of_four_equal_peers_leaves():
    four = start(16, peers([1] * 4))
    three = place(16, peers([1] * 3), owners=four.owners, routed_tokens={})
    assert sorted(counts(three).values()) == [5, 5, 6]
    assert len(three.moves) == three.lower_bound == 4


def test_a_fifth_equal_peer_joins():
    four = start(16, peers([1] * 4))
    five = place(16, peers([1] * 5), owners=four.owners, routed_tokens={})
    assert counts(five)["e.0"] == 3
    assert len(five.moves) == five.lower_bound == 3


def test_one_of_sixteen_peers_leaves():
    sixteen = start(16, peers([1] * 16, [2] * 16))
    fifteen = place(16, peers([1] * 15, [2] * 15), owners=sixteen.owners, routed_tokens={})
    assert len(fifteen.moves) == 1


def test_leaving_and_coming_back_restores_the_shares():
    all_four, first_three = peers([3, 2, 2, 1]), peers([3, 2, 2])
    before = start(16, all_four)
    without = place(16, first_three, owners=before.owners, routed_tokens={})
    after = place(16, all_four, owners=without.owners, routed_tokens={})
    assert counts(after) == counts(before)
    assert len(without.moves) == without.lower_bound
    assert len(after.moves) == after.lower_bound


def test_the_expert_without_a_place_changes_every_round():
    parked = [
        place(8, peers([1, 1], [4, 3]), owners={}, routed_tokens={3: 9}, rotation=rotation).parked
        for rotation in range(8)
    ]
    assert parked[0] == (3,)
    assert sorted(parked) == [(expert,) for expert in range(8)]


@given(num_experts=st.integers(2, 20), deficit=st.integers(1, 19), rotation=st.integers(0, 99))
def test_other_experts_are_parked_after_a_rotation(num_experts, deficit, rotation):
    deficit = min(deficit, num_experts - 1)
    candidates = peers([1], [num_experts - deficit])
    now, then = (
        place(num_experts, candidates, owners={}, routed_tokens={}, rotation=turn).parked
        for turn in (rotation, rotation + 1)
    )
    assert len(now) == len(then) == deficit
    assert now != then


def test_the_demo_moves_as_few_experts_as_possible():
    a, b, c = peers([2.0, 2.0, 1.0], [8, 4, 2])
    d = Candidate(peer="d.0", capacity=4, rate=None)
    first = start(8, [a, b, c])
    assert first.owners == {0: "a.0", 1: "a.0", 2: "a.0"} | {
        3: "b.0", 4: "b.0", 5: "b.0", 6: "c.0", 7: "c.0"
    }  # fmt: skip
    second = place(8, [a, b], owners=first.owners, routed_tokens={})
    assert counts(second) == {"a.0": 4, "b.0": 4}
    assert len(second.moves) == second.lower_bound == 2
    third = place(8, [a, b, d], owners=second.owners, routed_tokens={})
    assert counts(third) == {"a.0": 3, "b.0": 3, "d.0": 2}
    assert len(third.moves) == third.lower_bound == 2


def test_a_peer_gives_up_its_least_trained_experts():
    owners = dict.fromkeys(range(4), "a.0")
    placement = place(4, peers([1, 1]), owners=owners, routed_tokens={0: 5, 1: 50, 2: 5, 3: 50})
    assert [move.expert for move in placement.moves] == [0, 2]
    equal = place(4, peers([1, 1]), owners=owners, routed_tokens={})
    assert [move.expert for move in equal.moves] == [2, 3]


@pytest.mark.parametrize("rate", [None, 0.0, -1.0, float("nan"), float("inf")])
def test_a_peer_without_a_usable_rate_counts_as_the_mean(rate):
    placement = start(9, peers([1.0, 3.0, rate]))
    assert placement.quota == {"a.0": 1.5, "b.0": 4.5, "c.0": 3.0}


def test_unmeasured_peers_share_equally():
    assert start(6, peers([None, None, None])).quota == {"a.0": 2.0, "b.0": 2.0, "c.0": 2.0}


def test_a_full_peer_leaves_its_share_to_the_others():
    shares = fair_shares(
        10, candidates := peers([8, 1, 1], [2, 10, 10]), effective_rates(candidates)
    )
    assert shares == {"a.0": 2, "b.0": 4, "c.0": 4}
    assert all(isinstance(share, Fraction) for share in shares.values())


def test_without_candidates_everything_is_parked():
    placement = start(3, [])
    assert placement.parked == (0, 1, 2)
    assert placement.utilisation == 0.0


def test_a_peer_that_cannot_join_takes_nothing_and_slows_nobody():
    placement = start(4, peers([9.0, 1.0], [-1, 4]))
    assert counts(placement) == {"b.0": 4}
    assert placement.utilisation == 1.0


def test_the_peer_furthest_below_its_share_is_rounded_up():
    assert counts(start(3, peers([1.2, 1.8]))) == {"a.0": 1, "b.0": 2}
    assert counts(start(3, peers([1.8, 1.2]))) == {"a.0": 2, "b.0": 1}


def test_the_peer_furthest_above_its_share_gives():
    for rates, giver in (([1.2, 1.8, 2.0], "a.0"), ([1.8, 1.2, 2.0], "b.0")):
        owners = {0: "a.0", 1: "a.0", 2: "b.0", 3: "b.0", 4: "c.0"}
        placement = place(5, peers(rates), owners=owners, routed_tokens={})
        assert [(move.source, move.target) for move in placement.moves] == [(giver, "c.0")]
