"""Rotary positions, causality, normalised queries and keys."""

from __future__ import annotations

import pytest
import torch
from builders.closeness import assert_close
from builders.nano import NANO, nano_model
from spes_trainer.model.attention import RMSNorm, rotary, rotate

CPU = torch.device("cpu")


def turned(vector, position):
    angles = rotary(position + 1, head_size=4, theta=1e4, device=CPU)
    x_BNSH = torch.tensor(vector).repeat(position + 1, 1)[None, None]
    return rotate(x_BNSH, angles)[0, 0, position]


@pytest.mark.parametrize(
    ("vector", "expected"),
    [
        ((1.0, 0.0, 0.0, 0.0), (0.540302, 0.0, 0.841471, 0.0)),
        ((0.0, 1.0, 0.0, 0.0), (0.0, 0.99995, 0.0, 0.00999983)),
    ],
    ids=["fast pair", "slow pair"],
)
def test_rotation_turns_halves_against_each_other(vector, expected):
    assert turned(vector, 1).tolist() == pytest.approx(expected, abs=1e-6)


def test_only_the_distance_of_positions_matters():
    query, key = (0.3, -1.2, 0.7, 0.1), (1.1, 0.4, -0.6, 0.9)
    near = turned(query, 5) @ turned(key, 3)
    far = turned(query, 12) @ turned(key, 10)
    assert near.item() == pytest.approx(far.item(), abs=1e-5)


def test_norm_divides_by_the_root_mean_square():
    norm = RMSNorm(4, 0.0)
    assert norm(torch.tensor([2.0, 2.0, -2.0, 2.0])).tolist() == pytest.approx([1, 1, -1, 1])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"qk_norm": "PerHead"},
        {"qk_norm": "None"},
        {"num_kv_heads": 1},
        {"head_width": 8, "renormalize": True},
    ],
    ids=str,
)
def test_no_position_sees_a_later_one(changes):
    model = nano_model(config=NANO.model_copy(update=changes))
    tokens_BS = torch.arange(12)[None]
    changed_BS = tokens_BS.clone()
    changed_BS[0, 8] = 200
    before, after = model(tokens_BS).logits_BSV[0], model(changed_BS).logits_BSV[0]
    assert_close(before[:8], after[:8], rtol=1e-5, atol=1e-5)
    assert (before[8:] - after[8:]).abs().max() > 1e-3
