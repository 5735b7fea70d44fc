"""How many experts a device has room for.

A peer keeps weight, gradient and two moments of what it trains (AdamW), and the bare weight of the
experts it does not own (SPES, section 3.3, "Efficiency Analysis"). Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from spes_api.job import Precision
from spes_api.model import ModelSizes

# Part of a device's memory that is planned; the rest goes to the context, fragmentation and peaks.
USABLE_TENTHS = 9

# Capacity of a device that cannot hold even the shared parameters and the frozen experts.
CANNOT_JOIN = -1


class BytesPerParameter(NamedTuple):
    """Device memory of one parameter, by its role."""

    shared: int
    """Trained by everyone: weight, gradient, two moments."""
    frozen: int
    """An expert of another peer."""
    owned: int
    """What an expert adds to `frozen` when this peer trains it."""


# FP32: 4 bytes each of weight, gradient and two moments. BF16 adds a BF16 copy of the weight and a
# BF16 gradient; so counted, both memory figures of the paper's 2B model (35 GB, and 55 GB when
# every peer trains all) leave nearly the same for activations.
BYTES_PER_PARAMETER: dict[Precision, BytesPerParameter] = {
    "FP32": BytesPerParameter(shared=16, frozen=4, owned=12),
    "BF16": BytesPerParameter(shared=20, frozen=6, owned=14),
}


def state_bytes(sizes: ModelSizes, *, num_owned: int, precision: Precision) -> int:
    """Device memory of parameters, gradients and moments of a peer with `num_owned` experts."""
    each = BYTES_PER_PARAMETER[precision]
    return (
        each.shared * sizes.shared
        + each.frozen * sizes.all_experts
        + each.owned * num_owned * sizes.one_expert
    )


def capacity(
    *,
    memory_bytes: int,
    activation_bytes: int,
    sizes: ModelSizes,
    precision: Precision,
    limit: int | None,
) -> int:
    """Experts that fit, each in all layers; `CANNOT_JOIN` if not even the rest fits.

    Args:
        memory_bytes: The device's memory.
        activation_bytes: Peak of activations and workspace at the chosen micro-batch.
        sizes: Of the model.
        precision: Of training.
        limit: The job's experts.maxPerPeer.
    """
    usable = memory_bytes * USABLE_TENTHS // 10
    free = usable - activation_bytes - state_bytes(sizes, num_owned=0, precision=precision)
    if free < 0:
        return CANNOT_JOIN
    fitting = free // (BYTES_PER_PARAMETER[precision].owned * sizes.one_expert)
    return min(fitting, sizes.num_experts, sizes.num_experts if limit is None else limit)
