"""How many experts a slot holds for a given job. Pure."""

from __future__ import annotations

from spes_api.job import SpesJobSpec
from spes_api.kinds import SlotOffer

from spes_operator.placement.capacity import capacity
from spes_operator.placement.costs import estimated_activation_bytes


def slot_capacity(spec: SpesJobSpec, offer: SlotOffer) -> int:
    """Experts that fit; `CANNOT_JOIN` if not even the shared parameters and frozen experts do."""
    activation = spec.trainer.activation_bytes
    if activation is None:
        activation = offer.activation_bytes
    if activation is None:
        activation = estimated_activation_bytes(spec)
    return capacity(
        memory_bytes=offer.memory_bytes,
        activation_bytes=activation,
        sizes=spec.model.resolve().sizes,
        precision=spec.training.precision,
        limit=spec.experts.max_per_peer,
    )
