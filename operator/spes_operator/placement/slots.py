"""What a slot means for a given job: its activations, and how many experts it holds. Pure."""

from __future__ import annotations

from spes_api.job import SpesJobSpec

from spes_operator.placement.capacity import capacity
from spes_operator.placement.costs import estimated_activation_bytes


def slot_activation_bytes(spec: SpesJobSpec, measured: int | None) -> int:
    """Peak of activations: what the job says, else what the member measured, else an estimate."""
    if spec.trainer.activation_bytes is not None:
        return spec.trainer.activation_bytes
    return estimated_activation_bytes(spec) if measured is None else measured


def slot_capacity(spec: SpesJobSpec, *, memory_bytes: int, activation_bytes: int | None) -> int:
    """Experts that fit; `CANNOT_JOIN` if not even the shared parameters and frozen experts do.

    Args:
        spec: Of the job.
        memory_bytes: The slot's device memory.
        activation_bytes: As the member measured it; None: not yet.
    """
    return capacity(
        memory_bytes=memory_bytes,
        activation_bytes=slot_activation_bytes(spec, activation_bytes),
        sizes=spec.model.resolve().sizes,
        precision=spec.training.precision,
        limit=spec.experts.max_per_peer,
    )
