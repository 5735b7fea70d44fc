"""What a slot means for a given job: its activations, and how many experts it holds. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from spes_api.job import SpesJobSpec

from spes_operator.names import PeerId
from spes_operator.placement.capacity import CANNOT_JOIN, capacity
from spes_operator.placement.costs import GB, estimated_activation_bytes, peer_costs


class Room(NamedTuple):
    """What a slot offers a job."""

    memory_bytes: int
    activation_bytes: int | None
    """As the member measured them; None: not yet."""


def slot_activation_bytes(spec: SpesJobSpec, measured: int | None) -> int:
    """Peak of activations: what the job says, else what the member measured, else an estimate."""
    if spec.trainer.activation_bytes is not None:
        return spec.trainer.activation_bytes
    return estimated_activation_bytes(spec) if measured is None else measured


def slot_capacity(spec: SpesJobSpec, *, memory_bytes: int, activation_bytes: int | None) -> int:
    """Experts that fit; `CANNOT_JOIN` if not even the shared parameters and frozen experts do.

    Where every peer trains everything, a slot holds all experts or cannot join; experts.maxPerPeer
    then says nothing.

    Args:
        spec: Of the job.
        memory_bytes: The slot's device memory.
        activation_bytes: As the member measured it; None: not yet.
    """
    sizes, replicated = spec.model.resolve().sizes, spec.algorithm.replicated
    fitting = capacity(
        memory_bytes=memory_bytes,
        activation_bytes=slot_activation_bytes(spec, activation_bytes),
        sizes=sizes,
        precision=spec.training.precision,
        limit=None if replicated else spec.experts.max_per_peer,
    )
    return CANNOT_JOIN if replicated and fitting < sizes.num_experts else fitting


def too_small(spec: SpesJobSpec, rooms: Mapping[PeerId, Room]) -> str | None:
    """Why fewer than members.min slots can take part, with the numbers; None: enough can.

    The least is the shared parameters and the frozen experts; all of them trained, where every peer
    must.
    """
    short = {
        peer: room
        for peer, room in sorted(rooms.items())
        if slot_capacity(spec, **room._asdict()) == CANNOT_JOIN
    }
    able = len(rooms) - len(short)
    if not short or able >= spec.members.min:
        return None
    each = ", ".join(
        f"{peer} has {room.memory_bytes / GB:.3f} of {_least_bytes(spec, room) / GB:.3f} GB"
        for peer, room in short.items()
    )
    able_peers = f"{able} of {len(rooms)} peers have memory for"
    start = f"{able_peers} the model even without an expert of their own"
    if spec.algorithm.replicated:
        num_experts = spec.model.resolve().num_experts
        every = f"with {spec.algorithm.name} every peer trains all {num_experts} experts"
        start = f"{every}, but {able_peers} that"
    return (
        f"{start} (members.min is {spec.members.min}): {each}; "
        "add memory or members, or take a smaller model"
    )


def _least_bytes(spec: SpesJobSpec, room: Room) -> int:
    """Device memory for taking part, without what stays free."""
    return peer_costs(
        spec,
        num_experts=spec.model.resolve().num_experts if spec.algorithm.replicated else 0,
        activation_bytes=slot_activation_bytes(spec, room.activation_bytes),
    ).device_bytes
