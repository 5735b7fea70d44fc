"""What a cluster's nodes can lend: slots of GPUs, by model and memory. Pure.

A slot is a shape, not a place: the scheduler picks the node. Still, when a node is taken away, the
slot that is no longer offered should be the one whose trainer ran there: see `_names`.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from spes_operator.k8s.api import JsonObject
from spes_operator.member.view import Slot
from spes_operator.names import LABEL_GPU_MEMORY, LABEL_GPU_PRODUCT

# Resource of NVIDIA's device plugin.
GPU = "nvidia.com/gpu"
_MIB = 2**20
# Of a slot's name: with its number it stays within the 40 characters that a name may have.
_MAX_MODEL = 32
# Tells apart products whose names are cut.
_DIGEST = 4
_KEEPS_PODS_AWAY = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePolicy:
    """How nodes become slots."""

    gpus_per_slot: int = 1
    tolerations: Sequence[JsonObject] = ()
    """Of the trainers' pods."""
    resources: Mapping[str, str] = field(default_factory=dict)
    """What each slot's pod gets besides its GPUs."""
    max_gpus: int | None = None
    """Lent at most; None: all."""


class _Supply(NamedTuple):
    """GPUs of one model."""

    memory_bytes: int
    """Of the smallest GPU, for every slot must fit anywhere."""
    slots: int


def slots_of_nodes(
    nodes: Sequence[JsonObject], policy: NodePolicy, placed: Mapping[str, str]
) -> tuple[Slot, ...]:
    """The slots that the nodes can hold now, in order of name.

    Args:
        nodes: Every node of the cluster.
        policy: How they are cut into slots.
        placed: Slot -> name of the node that its trainer's pod is on.
    """
    usable = [node for node in nodes if _is_usable(node, policy.tolerations)]
    usable_names = {node["metadata"]["name"] for node in usable}
    left = math.inf if policy.max_gpus is None else policy.max_gpus // policy.gpus_per_slot
    slots: list[Slot] = []
    for product, supply in _supplies(usable, policy.gpus_per_slot).items():
        count = int(min(supply.slots, left))
        left -= count
        slots += (
            Slot(
                name=name,
                memory_bytes=supply.memory_bytes * policy.gpus_per_slot,
                resources={**policy.resources, GPU: str(policy.gpus_per_slot)},
                node_selector={LABEL_GPU_PRODUCT: product},
            )
            for name in _names(_model(product), count, placed, usable_names)
        )
    return tuple(sorted(slots, key=lambda slot: slot.name))


def _is_usable(node: JsonObject, tolerations: Sequence[JsonObject]) -> bool:
    """A trainer's pod could be put there: ready, not cordoned, every taint tolerated."""
    spec = node.get("spec", {})
    conditions = node.get("status", {}).get("conditions", ())
    is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return (
        is_ready
        and not spec.get("unschedulable")
        and all(
            any(_tolerates(toleration, taint) for toleration in tolerations)
            for taint in spec.get("taints", ())
            if taint["effect"] in _KEEPS_PODS_AWAY
        )
    )


def _tolerates(toleration: JsonObject, taint: JsonObject) -> bool:
    """As the scheduler judges it."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    exists = toleration.get("operator", "Equal") == "Exists"
    return exists or bool(toleration.get("value", "") == taint.get("value", ""))


def _supplies(nodes: Iterable[JsonObject], gpus_per_slot: int) -> dict[str, _Supply]:
    """Product -> what there is of it; nodes whose labels do not tell are left out."""
    found: dict[str, list[_Supply]] = defaultdict(list)
    for node in nodes:
        labels = node["metadata"].get("labels", {})
        count = _whole(node.get("status", {}).get("allocatable", {}).get(GPU)) // gpus_per_slot
        memory = _whole(labels.get(LABEL_GPU_MEMORY))
        product = labels.get(LABEL_GPU_PRODUCT, "")
        if count and memory and product:
            found[product].append(_Supply(memory * _MIB, count))
    return {
        product: _Supply(
            min(supply.memory_bytes for supply in supplies),
            sum(supply.slots for supply in supplies),
        )
        for product, supplies in sorted(found.items())
    }


def _whole(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isdecimal() else 0


def _model(product: str) -> str:
    """The product's name as part of a slot's: NVIDIA-A100-SXM4-80GB becomes a100-sxm4-80gb."""
    plain = re.sub(r"[^a-z0-9]+", "-", product.lower()).removeprefix("nvidia-").strip("-")
    if len(plain) <= _MAX_MODEL:
        return plain
    digest = hashlib.sha256(product.encode()).hexdigest()[:_DIGEST]
    return f"{plain[: _MAX_MODEL - _DIGEST - 1].rstrip('-')}-{digest}"


def _names(model: str, count: int, placed: Mapping[str, str], usable: set[str]) -> list[str]:
    """`count` names of slots; those whose trainer is on a usable node stay, then the lowest.

    A slot whose trainer is on a node that cannot be used any more is not offered: so the hub moves
    the experts that are about to be lost, not others.
    """
    pattern = re.compile(rf"{re.escape(model)}-(\d+)")
    ours = {name for name in placed if pattern.fullmatch(name)}
    lost = {name for name in ours if placed[name] not in usable}
    kept = sorted(ours - lost, key=_number)[:count]
    index = 0
    while len(kept) < count:
        if (name := f"{model}-{index}") not in lost and name not in kept:
            kept.append(name)
        index += 1
    return kept


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])
