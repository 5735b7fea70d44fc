"""Weights of peers' changes: shares of an average, and FedNova's worked example."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spes_sync.plan import PeerId
from spes_sync.versions import CommitRecord, Contribution
from spes_sync.weighing import Weighing, Work
from spes_sync.work_shares import WorkShare, work_shares

A, B, C = PeerId("a"), PeerId("b"), PeerId("c")
DISCOUNTS = ["Constant", "Polynomial", "Hinge"]
RATE, TARGETS, STEPS = 0.1, {A: 1.0, B: -1.0}, {A: 2, B: 8}

counts = st.integers(1, 10_000)
works = st.dictionaries(
    st.sampled_from([A, B, C]),
    st.builds(Work, steps=counts, tokens=counts, samples=counts),
    min_size=1,
)


def work(*, steps: int = 1, tokens: int = 1, samples: int = 1, staleness: int = 0) -> Work:
    return Work(steps=steps, tokens=tokens, samples=samples, staleness=staleness)


def change(model: float, peer: PeerId, rate: float = RATE) -> float:
    """What SGD on 0.5 (x - c)^2 makes of the model in the peer's steps."""
    return (TARGETS[peer] - model) * (1 - (1 - rate) ** STEPS[peer])


def moved(model: float, weighing: Weighing, rate: float = RATE) -> float:
    weights = weighing.of({peer: work(steps=STEPS[peer]) for peer in TARGETS})
    return model + sum(weights[peer] * change(model, peer, rate) for peer in TARGETS)


def fixed_point(weighing: Weighing, rate: float = RATE) -> float:
    model = 0.0
    for _ in range(20_000):
        model = moved(model, weighing, rate)
    return model


FEDAVG, FEDNOVA = Weighing(), Weighing(by_step=True)


def test_one_round_of_the_worked_example():
    assert [change(0, peer) for peer in (A, B)] == pytest.approx([0.19, -0.56953279])
    assert moved(0, FEDAVG) == pytest.approx(-0.189766395)
    assert moved(0, FEDNOVA) == pytest.approx(0.059521003125)


@pytest.mark.parametrize(
    ("weighing", "rate", "model"),
    [(FEDAVG, 0.1, -0.4996924), (FEDNOVA, 0.1, 0.1432588), (FEDNOVA, 1e-3, 0.0014995)],
    ids=["FedAvg", "FedNova", "FedNova at a small rate"],
)
def test_where_the_worked_example_comes_to_rest(weighing, rate, model):
    assert fixed_point(weighing, rate) == pytest.approx(model, abs=1e-6)


def test_fedavg_is_biased_however_small_the_rate():
    assert fixed_point(FEDAVG, 1e-3) == pytest.approx(-0.6, abs=0.002)


@given(works=works, weights=st.sampled_from(["Uniform", "Tokens", "Samples"]))
def test_shares_add_up_to_one_and_follow_what_they_go_by(works, weights):
    found = Weighing(weights=weights).of(works)
    assert sum(found.values()) == pytest.approx(1)
    sizes = [getattr(w, weights.lower(), 1) for w in works.values()]
    assert np.array(list(found.values())) == pytest.approx(np.array(sizes) / sum(sizes))


@given(works=works, weights=st.sampled_from(["Uniform", "Tokens", "Samples"]))
def test_fednova_goes_as_far_as_the_mean_number_of_steps(works, weights):
    """As if every change were as many equal steps as its peer made."""
    shares = Weighing(weights=weights).of(works)
    found = Weighing(weights=weights, by_step=True).of(works)
    mean_steps = sum(shares[peer] * works[peer].steps for peer in works)
    assert sum(found[peer] * works[peer].steps for peer in works) == pytest.approx(mean_steps)


@given(works=works, steps=counts)
def test_fednova_is_fedavg_where_all_make_as_many_steps(works, steps):
    equal = {p: Work(steps=steps, tokens=w.tokens, samples=w.samples) for p, w in works.items()}
    assert Weighing(by_step=True).of(equal) == pytest.approx(Weighing().of(equal))


def test_300_and_100_tokens_of_changes_1_and_minus_1():
    found = Weighing(weights="Tokens").of({A: work(tokens=300), B: work(tokens=100)})
    assert found[A] - found[B] == 0.5


def test_fedbuff_of_changes_that_have_missed_0_3_and_8_versions():
    stale = {A: 0, B: 3, C: 8}
    weights = Weighing(discount="Polynomial").of({p: work(staleness=s) for p, s in stale.items()})
    assert weights[A] * 1 + weights[B] * 2 + weights[C] * -4 == pytest.approx(0.222222, abs=1e-6)


@pytest.mark.parametrize("discount", DISCOUNTS)
@given(works=works)
def test_a_buffer_of_fresh_changes_is_the_average(works, discount):
    assert Weighing(discount=discount).of(works) == Weighing().of(works)


@pytest.mark.parametrize(
    ("discount", "factors"),
    [
        ("Constant", [1, 1, 1, 1]),
        ("Polynomial", [1, 2**-0.5, 5**-0.5, 6**-0.5]),
        ("Hinge", [1, 1, 1, 1 / 11]),
    ],
)
def test_fedasync_goes_a_rate_times_its_discount_along_one_change(discount, factors):
    found = [
        Weighing(rate=0.6, discount=discount).of({A: work(staleness=tau)})[A]
        for tau in (0, 1, 4, 5)
    ]
    assert found == pytest.approx([0.6 * factor for factor in factors])


def record(tokens: dict[PeerId, int], worked: dict[PeerId, int]) -> CommitRecord:
    return CommitRecord(
        version=2,
        job_uid="job",
        incarnation=1,
        epoch=1,
        global_tokens=sum(worked.values()),
        model_sha256="",
        files={},
        contributions=tuple(
            Contribution(
                peer=peer,
                session="",
                pushes=(),
                weight=1 / len(tokens),
                experts=(),
                steps=1,
                tokens=count,
                loss=0.0,
            )
            for peer, count in tokens.items()
        ),
        worked=worked,
    )


def test_work_is_told_by_tokens_though_all_weigh_alike():
    shares = work_shares(record({A: 96, B: 4}, {A: 96, B: 104}))
    assert shares == {A: WorkShare(0.96, 0.48), B: WorkShare(0.04, 0.52)}


def test_who_missed_the_version_has_what_it_did_before():
    assert work_shares(record({A: 10}, {A: 30, B: 10}))[B] == WorkShare(0.0, 0.25)


def test_before_the_first_version_nobody_has_done_anything():
    assert work_shares(None) == {}
    assert work_shares(record({}, {})) == {}
