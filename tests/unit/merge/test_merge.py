"""Expert merging (arXiv 2602.11543, section 3.3): schedule, donors, update, memory."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from spes_sync.errors import ProtocolError
from spes_sync.merge import (
    MergeStep,
    alpha_at,
    choose_donors,
    merge_experts,
    merge_stack,
    similarity,
)

PLANE = np.array([(1, 0), (0.8, 0.6), (0, 1), (-1, 0)], np.float32)
MATRICES = ("w1", "v1", "w2")


def model(num_experts=4, num_layers=2, shape=(3, 5), seed=0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    experts = {
        f"layers.{layer}.experts.{expert}.{matrix}": random.normal(size=shape).astype("f4")
        for layer in range(num_layers)
        for expert in range(num_experts)
        for matrix in MATRICES
    }
    return experts | {"embedding.weight": random.normal(size=(7, 5)).astype("f4")}


def merged(weights, *, alpha=0.1, num_donors=2, names=None) -> dict[str, np.ndarray]:
    step = MergeStep(alpha=alpha, num_donors=num_donors)
    return {
        name: value.copy()
        for name, value in merge_experts(names or weights, weights.__getitem__, step)
    }


def direct(stack, similarity_stack, *, alpha, num_donors):
    """The published form in float64: all pairs at once, M x M x N."""
    wide = similarity_stack.astype(float)
    cosine = (wide[:, None] * wide[None]).sum(-1)
    norms = np.linalg.norm(wide, axis=1)
    cosine /= norms[:, None] * norms[None]
    np.fill_diagonal(cosine, -np.inf)
    donors = np.argsort(-cosine, axis=1)[:, :num_donors]
    values = stack.astype(float)
    return values + alpha * (values[donors] - values[:, None]).mean(axis=1)


@pytest.mark.parametrize(
    ("step", "alpha"),
    [
        (0, 0.1),
        (300, 0.0976),
        (3000, 0.076),
        (6000, 0.052),
        (12300, 0.0016),
        (12500, 0),
        (99999, 0),
    ],
)
def test_alpha_falls_linearly_to_zero(step, alpha):
    assert alpha_at(step, alpha=0.1, warmup=12500) == pytest.approx(alpha, abs=1e-15)


def test_defaults_of_the_paper_make_41_merges():
    alphas = [alpha_at(step, alpha=0.1, warmup=12500) for step in range(300, 20000, 300)]
    used = [alpha for alpha in alphas if alpha > 0]
    assert len(used) == 41
    assert math.fsum(used) == pytest.approx(2.0336)
    assert math.fsum(alpha**2 for alpha in used) == pytest.approx(0.13392896)


def test_four_experts_in_the_plane_move_to_their_nearest():
    donors = choose_donors(similarity(PLANE), num_donors=1)
    assert donors[:, 0].tolist() == [1, 0, 1, 2]
    stack = PLANE.copy()
    merge_stack(stack, donors, alpha=0.1)
    expected = [(0.98, 0.06), (0.82, 0.54), (0.08, 0.96), (-0.9, 0.1)]
    np.testing.assert_allclose(stack, expected, rtol=2e-7)


def test_every_matrix_follows_the_donors_of_w1():
    weights = model(num_experts=6)
    after = merged(weights, num_donors=3)
    assert after.keys() == weights.keys() - {"embedding.weight"}
    for layer in range(2):
        stacks = {
            m: np.stack([weights[f"layers.{layer}.experts.{e}.{m}"].ravel() for e in range(6)])
            for m in MATRICES
        }
        for matrix, stack in stacks.items():
            expected = direct(stack, stacks["w1"], alpha=0.1, num_donors=3)
            got = [after[f"layers.{layer}.experts.{e}.{matrix}"].ravel() for e in range(6)]
            np.testing.assert_allclose(np.stack(got), expected, rtol=4e-6, atol=1e-7)


@given(order=st.permutations(sorted(model())))
def test_the_order_of_the_tensors_changes_no_bit(order):
    weights = model()
    expected = merged(weights)
    got = merged(weights, names=order)
    assert {n: v.tobytes() for n, v in got.items()} == {n: v.tobytes() for n, v in expected.items()}


@given(order=st.permutations(range(5)), num_donors=st.integers(1, 4), seed=st.integers(0, 99))
def test_relabelling_the_experts_relabels_the_result(order, num_donors, seed):
    stack = np.random.default_rng(seed).normal(size=(5, 11)).astype("f4")
    relabelled = stack[order]
    cosines = np.sort(similarity(stack)[np.triu_indices(5, 1)])
    assume(np.diff(cosines).min() > 1e-9)
    for one in (stack, relabelled):
        merge_stack(one, choose_donors(similarity(one), num_donors=num_donors), alpha=0.3)
    assert relabelled.tobytes() == stack[order].tobytes()


@given(seed=st.integers(0, 99), num_experts=st.integers(1, 6), num_donors=st.integers(1, 9))
def test_alpha_zero_changes_no_bit(seed, num_experts, num_donors):
    weights = model(num_experts=num_experts, num_layers=1, seed=seed)
    weights["layers.0.experts.0.w1"][0, 0] = -0.0
    after = merged(weights, alpha=0.0, num_donors=num_donors)
    assert all(value.tobytes() == weights[name].tobytes() for name, value in after.items())


@given(seed=st.integers(0, 99), num_experts=st.integers(2, 8), alpha=st.floats(0.01, 0.5))
def test_all_donors_keep_the_mean_and_shrink_the_spread(seed, num_experts, alpha):
    stack = np.random.default_rng(seed).normal(size=(num_experts, 9)).astype("f4")
    before = stack.astype(float)
    merge_stack(stack, choose_donors(similarity(stack), num_donors=num_experts - 1), alpha=alpha)
    after = stack.astype(float)
    np.testing.assert_allclose(after.mean(0), before.mean(0), atol=2e-6)
    shrink = 1 - alpha * num_experts / (num_experts - 1)
    np.testing.assert_allclose(
        after - after.mean(0), shrink * (before - before.mean(0)), rtol=1e-5, atol=5e-6
    )


def test_more_donors_than_others_means_all_others():
    donors = choose_donors(similarity(PLANE), num_donors=99)
    assert [sorted(row) for row in donors.tolist()] == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]


def test_one_expert_alone_stays_as_it_is():
    weights = model(num_experts=1, num_layers=1)
    after = merged(weights, alpha=0.5, num_donors=4)
    assert after["layers.0.experts.0.w1"].tobytes() == weights["layers.0.experts.0.w1"].tobytes()


def test_a_zero_expert_is_similar_to_none():
    stack = np.array([(0, 0), (1, 0), (-1, 0.5)], np.float32)
    cosines = similarity(stack)
    assert cosines[0].tolist() == [0, 0, 0]
    assert choose_donors(cosines, num_donors=1)[:, 0].tolist() == [1, 0, 0]


@pytest.mark.parametrize("num_weights", [3, 64, 200_000])
def test_equal_experts_tie_towards_the_lowest_index(num_weights):
    row = np.random.default_rng(5).normal(size=num_weights).astype("f4")
    donors = choose_donors(similarity(np.tile(row, (7, 1))), num_donors=3)
    assert donors.tolist() == [
        [1, 2, 3],
        [0, 2, 3],
        [0, 1, 3],
        [0, 1, 2],
        [0, 1, 2],
        [0, 1, 2],
        [0, 1, 2],
    ]


def test_similarities_equal_but_for_rounding_tie():
    cosines = np.array([[1, 0.5, 0.5 + 2e-16], [0.5, 1, 0.1], [0.5, 0.1, 1]])
    assert cosines[0, 2] > cosines[0, 1]
    assert choose_donors(cosines, num_donors=1)[0].tolist() == [1]


def test_pieces_do_not_show_in_the_result():
    stack = np.random.default_rng(1).normal(size=(8, 100_003)).astype("f4")  # 3.05 pieces
    expected = direct(stack, stack, alpha=0.2, num_donors=4)
    merge_stack(stack, choose_donors(similarity(stack), num_donors=4), alpha=0.2)
    np.testing.assert_allclose(stack, expected, rtol=4e-6, atol=1e-6)


def test_memory_is_that_of_one_matrix():
    weights = model(num_experts=8, num_layers=2, shape=(512, 512))
    one_stack, pieces = 8 * 512 * 512 * 4, 5 * 2**20
    step = MergeStep(alpha=0.1, num_donors=4)
    tracemalloc.start()
    try:
        for _ in merge_experts(weights, weights.__getitem__, step):
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert one_stack < peak < one_stack + pieces < 2 * one_stack


def test_the_source_is_not_written_to():
    weights = model()
    for value in weights.values():
        value.flags.writeable = False
    merged(weights)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("layers.0.experts.2.v1"), "every expert needs the same matrices"),
        (lambda w: [w.pop(f"layers.1.experts.{e}.w1") for e in range(4)], "one of them w1"),
        (
            lambda w: w.update({"layers.0.experts.3.w2": np.zeros((5, 3), np.float32)}),
            r"layers\.0\.experts\.3\.w2 \(got shape \[5, 3\], expected \[3, 5\]\)",
        ),
    ],
    ids=["missing matrix", "no w1", "another shape"],
)
def test_unequal_experts_are_refused(change, message):
    weights = model()
    change(weights)
    with pytest.raises(ProtocolError, match=message):
        merged(weights)
