"""Operations of a step: by hand, and for a released model."""

from __future__ import annotations

import numpy as np
import pytest
from builders.nano import NANO
from builders.training_steps import outcome
from spes_api.model import preset_config
from spes_trainer.metrics.flops import device_peak, step_flops

# Of NANO: weights outside of experts that are multiplied with, of one expert, and attention.
SHARED = 32 * (32 + 32 + 32 + 32 + 4) + 256 * 32
EXPERT = 3 * 32 * 32
ATTENTION = 2 * 32 * 16


def flops(**changes) -> float:
    return step_flops(NANO, outcome(**changes), sequence_tokens=16)


def test_a_weight_costs_six_for_each_token():
    assert flops() == 6 * (64 * (SHARED + ATTENTION) + 128 * EXPERT)


def test_a_frozen_expert_costs_four():
    routed = ((100, 28, 0, 0),)
    assert flops(routed=routed) - flops(routed=routed, owned=frozenset({1})) == 2 * 100 * EXPERT
    assert flops(routed=routed) - flops(routed=routed, owned=frozenset()) == 2 * 128 * EXPERT


def test_a_released_model_needs_six_for_each_weight_in_use():
    """1B has 374,700,288 weights in use; 116,478,720 of them are looked up, 37,632 are norms."""
    config, sequence = preset_config("moe-1b"), 2048
    even = np.full((12, 16), 2 * sequence // 16)
    done = outcome(routed=even, tokens=sequence, owned=frozenset(range(16)))
    needed = step_flops(config, done, sequence_tokens=sequence) / sequence
    assert needed == 6 * (374_700_288 - 116_478_720 - 37_632) + 12 * 12 * 768 * sequence


@pytest.mark.parametrize(
    ("name", "bfloat16", "expected"),
    [
        ("NVIDIA H200", True, 989e12),
        ("NVIDIA H200", False, 67e12),
        ("NVIDIA H100 80GB HBM3", True, 989e12),
        ("NVIDIA GH200 480GB", True, 989e12),
        ("NVIDIA H100 PCIe", True, 756e12),
        ("NVIDIA H100 NVL", True, 835e12),
        ("NVIDIA A100-SXM4-80GB", True, 312e12),
        ("NVIDIA A10", True, 125e12),
        ("NVIDIA L40S", True, 362e12),
        ("NVIDIA L4", False, 30.3e12),
        ("NVIDIA GeForce RTX 4090", True, 165e12),
        ("NVIDIA A10G", True, None),
        ("Some CPU", True, None),
    ],
    ids=str,
)
def test_peaks_are_found_by_whole_words(name, bfloat16, expected):
    assert device_peak(name, bfloat16=bfloat16) == expected
