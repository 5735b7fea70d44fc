"""Floating-point operations that a step needs, and that a device can do: both halves of MFU. Pure.

Model FLOPs utilisation is that of PaLM (arXiv 2204.02311, appendix B): what the model needs, not
what was computed, so activations that are computed twice count once; a multiplication and an
addition are two; attention counts as if it were not causal; embeddings, norms and the optimizer do
not count. A weight costs 6 per token: 2 forwards, 2 for the gradient of its input, 2 for its own.
Two things follow from the model being a mixture: a token counts the experts that it was routed to,
and an expert that this peer does not own has no gradient of its own, so it costs 4.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from spes_api.model import ModelConfig

from spes_trainer.step import StepOutcome

# Of each product and token: forwards, and either gradient.
_FORWARD = _GRADIENT = 2


def step_flops(config: ModelConfig, outcome: StepOutcome, *, sequence_tokens: int) -> float:
    """Return what a step needs, all processes of the peer together."""
    query = config.num_heads * config.head_size
    key_value = 2 * config.kv_heads * config.head_size
    layer = config.width * (2 * query + key_value + config.num_experts)
    shared = config.num_layers * layer + config.vocabulary * config.width
    attention = 2 * config.num_layers * query * sequence_tokens  # scores, and sums of values

    expert = 3 * config.width * config.expert_width
    routed = int(outcome.routed.sum())
    trained = int(outcome.routed[:, np.array(sorted(outcome.owned), dtype=int)].sum())
    return (
        (_FORWARD + 2 * _GRADIENT) * (shared + attention) * outcome.tokens
        + (_FORWARD + _GRADIENT) * expert * routed
        + _GRADIENT * expert * trained
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """What a device does at most, in floating-point operations per second, without sparsity."""

    name: str
    """A pattern of whole words in the name that the driver gives."""
    bfloat16: float
    """Matrix products in bfloat16, sums in float32."""
    float32: float
    """Products in float32 proper, not TF32, which torch does not use by itself."""


# From NVIDIA's data sheets. The first pattern that fits counts.
_PEAKS = (
    Peak(name="B200", bfloat16=2250e12, float32=75e12),
    Peak(name="H[12]00 NVL", bfloat16=835e12, float32=60e12),
    Peak(name="H100 PCIe", bfloat16=756e12, float32=51e12),
    Peak(name="G?H[12]00", bfloat16=989e12, float32=67e12),
    Peak(name="A100", bfloat16=312e12, float32=19.5e12),
    Peak(name="L40S", bfloat16=362e12, float32=91.6e12),
    Peak(name="L4", bfloat16=121e12, float32=30.3e12),
    Peak(name="A10", bfloat16=125e12, float32=31.2e12),
    Peak(name="RTX 4090", bfloat16=165e12, float32=82.6e12),
    Peak(name="RTX 3090", bfloat16=71e12, float32=35.6e12),
)


def device_peak(device_name: str, *, bfloat16: bool) -> float | None:
    """Return what a device does at most; None if it is not in the table."""
    for peak in _PEAKS:
        if re.search(rf"\b{peak.name}\b", device_name):
            return peak.bfloat16 if bfloat16 else peak.float32
    return None
