"""The order of sequences: passes, weights, who shares it; a position is enough to resume."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spes_trainer.data.order import BLOCK, SequenceOrder, Share, apportion


def make_order(*shares, seed=0, split="Disjoint", peer="a") -> SequenceOrder:
    return SequenceOrder([Share(*share) for share in shares], seed=seed, split=split, peer=peer)


def sequences(order, positions) -> list[int]:
    return [pick.sequence for pick in order.at(positions)]


@given(num=st.integers(1, 50), seed=st.integers(0, 5), number=st.integers(0, 3))
def test_a_pass_is_a_permutation(num, seed, number):
    order = make_order((num, 1.0), seed=seed)
    assert sorted(sequences(order, range(num * number, num * (number + 1)))) == list(range(num))


def test_the_order_of_one_source_stays_what_it_was():
    """Jobs go on where they were: these are the first sequences since the first release."""
    order = make_order((1000, 1.0), seed=6198)
    assert sequences(order, [0, 1, 2, 999, 1000, 1001]) == [615, 832, 881, 501, 514, 252]


def test_passes_and_seeds_differ():
    order, other = make_order((100, 1.0)), make_order((100, 1.0), seed=1)
    first, second = sequences(order, range(100)), sequences(order, range(100, 200))
    assert first != second
    assert first != sequences(other, range(100))


@pytest.mark.parametrize(
    ("split", "same"), [("Disjoint", True), ("Overlap", False), ("Local", False)]
)
def test_peers_share_an_order_only_if_disjoint(split, same):
    shares = [(100, 1.0), (50, 2.0)]
    a = make_order(*shares, split=split, peer="uni-a.0").at(range(100))
    b = make_order(*shares, split=split, peer="uni-b.0").at(range(100))
    assert (a == b) is same


def test_overlapping_peers_cover_what_chance_says():
    """Four peers that each read a quarter cover 1 - 0.75^4 = 68.36 %; disjoint ones all."""
    num = 20_000
    quarter = num // 4

    def covered(split):
        seen: set[int] = set()
        for index in range(4):
            order = make_order((num, 1.0), split=split, peer=f"uni-{index}.0")
            seen.update(sequences(order, range(index * quarter, (index + 1) * quarter)))
        return len(seen) / num

    assert covered("Disjoint") == 1.0
    assert covered("Overlap") == pytest.approx(0.6836, abs=0.01)


shares = st.lists(
    st.tuples(st.integers(1, 300), st.floats(0.1, 10)).map(lambda pair: Share(*pair)),
    min_size=1,
    max_size=5,
)


@given(shares=shares, first=st.integers(0, 5000), seed=st.integers(0, 3))
def test_a_position_says_all_that_resuming_needs(shares, first, seed):
    """Whatever was asked for before, in whatever order."""
    positions = range(first, first + 40)
    straight = make_order(*shares, seed=seed).at(positions)
    fresh = make_order(*shares, seed=seed)
    assert list(reversed(fresh.at(positions[::-1]))) == straight


@given(shares=shares, seed=st.integers(0, 3))
def test_no_sequence_comes_twice_in_a_pass_of_its_source(shares, seed):
    """So parts of the order that different peers are leased have none in common in a pass."""
    drawn = make_order(*shares, seed=seed).at(range(3 * BLOCK))
    for source, share in enumerate(shares):
        own = [pick.sequence for pick in drawn if pick.source == source]
        for start in range(0, len(own), share.num_sequences):
            part = own[start : start + share.num_sequences]
            assert len(set(part)) == len(part)


def test_sources_are_drawn_in_proportion_to_their_weights():
    order = make_order((10, 1.0), (5000, 2.5), (7, 0.5))
    counts = Counter(pick.source for pick in order.at(range(5 * BLOCK)))
    assert [counts[i] / (5 * BLOCK) for i in range(3)] == pytest.approx([0.25, 0.625, 0.125])


def test_a_source_of_next_to_no_weight_is_drawn_once_a_block():
    drawn = make_order((9, 1000.0), (9, 1e-3)).at(range(3 * BLOCK))
    assert sum(pick.source for pick in drawn) == 3


def test_a_small_source_is_passed_over_more_often():
    """A third of the size at the same weight: three passes while the other makes one."""
    drawn = make_order((1536, 1.0), (512, 1.0)).at(range(2 * 1536))
    large, small = (Counter(p.sequence for p in drawn if p.source == i) for i in range(2))
    assert set(large.values()) == {1}
    assert set(small.values()) == {3}


def test_the_mixture_is_drawn_not_alternated():
    drawn = [pick.source for pick in make_order((9, 1.0), (9, 1.0)).at(range(2 * BLOCK))]
    assert drawn[:BLOCK] != drawn[BLOCK:]
    assert 0.4 < sum(a != b for a, b in pairwise(drawn)) / len(drawn) < 0.6


@given(
    total=st.integers(0, 3000),
    weights=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=64),
    least=st.integers(0, 1),
)
def test_parts_sum_up_and_follow_the_weights(total, weights, least):
    total += len(weights)
    parts = apportion(total, weights, least=least)
    assert sum(parts) == total
    assert min(parts) >= least
    if least == 0:
        quotas = [total * weight / sum(weights) for weight in weights]
        assert all(abs(p - q) < 1 + 1e-6 for p, q in zip(parts, quotas, strict=True))
