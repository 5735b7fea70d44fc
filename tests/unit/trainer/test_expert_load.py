"""How evenly experts are used, by numbers worked out by hand and by what must always hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from spes_trainer.metrics.experts import ExpertLoad


def test_even_routing_uses_all_experts():
    load = ExpertLoad.of(np.full((2, 4), 16))
    assert load.shares == (0.25,) * 4
    assert (load.utilisation, load.highest, load.dead) == (pytest.approx(1), 1, ())


def test_half_of_the_experts_in_use_are_half():
    load = ExpertLoad.of(np.array([[32, 32, 0, 0]]))
    assert load.utilisation == pytest.approx(0.5)
    assert load.highest == 2
    assert load.dead == ("layers.0.experts.2", "layers.0.experts.3")


def test_an_expert_that_is_dead_in_one_layer_alone_is_named():
    load = ExpertLoad.of(np.array([[16, 16, 16, 16], [32, 16, 16, 0]]))
    assert load.dead == ("layers.1.experts.3",)
    assert load.shares == (48 / 128, 32 / 128, 32 / 128, 16 / 128)


def test_the_fewest_tokens_that_keep_an_expert_alive():
    """Even are 1,000 tokens for each of two experts: ten are one in a hundred of that."""
    assert ExpertLoad.of(np.array([[1991, 9]])).dead == ("layers.0.experts.1",)
    assert ExpertLoad.of(np.array([[1990, 10]])).dead == ()


@given(
    arrays(np.int64, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=st.integers(0, 999))
)
def test_loads_stay_within_their_bounds(routed):
    routed[:, 0] += 1  # a layer routes something
    num_experts = routed.shape[1]
    load = ExpertLoad.of(routed)
    assert sum(load.shares) == pytest.approx(1)
    assert 1 / num_experts - 1e-9 <= load.utilisation <= 1 + 1e-9
    assert 1 - 1e-9 <= load.highest <= num_experts + 1e-9
    assert len(load.dead) < routed.size
