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
# Taints by which Kubernetes itself says that a node is not heard.
_OF_SILENCE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
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


class Supply(NamedTuple):
    """GPUs of one model."""

    product: str
    memory_bytes: int
    """Of the smallest GPU, for every slot must fit anywhere."""
    slots: int


class Standing(NamedTuple):
    """What a node means for slots."""

    offer: Supply | None = None
    """What it can hold now; None: nothing, or its labels do not tell."""
    is_silent: bool = False
    """Not heard now, and else as good as usable: it may be back at any moment."""


class Placed(NamedTuple):
    """Where a slot's trainer is."""

    node: str
    """Its name."""
    is_ending: bool = False
    """Its pod is being deleted: it ends, and is replaced, when its node says so."""


def slots_of_nodes(
    nodes: Sequence[JsonObject], policy: NodePolicy, placed: Mapping[str, Placed]
) -> tuple[Slot, ...]:
    """The slots that the nodes can hold now, in order of name.

    Args:
        nodes: Every node of the cluster.
        policy: How they are cut into slots.
        placed: By slot, those that have a pod.
    """
    standings = {node["metadata"]["name"]: standing_of_node(node, policy) for node in nodes}
    usable = {name: one.offer for name, one in standings.items() if one.offer is not None}
    silent = frozenset(name for name, one in standings.items() if one.is_silent)
    nodes_now = _Nodes(usable=frozenset(usable), silent=silent)
    left = math.inf if policy.max_gpus is None else policy.max_gpus // policy.gpus_per_slot
    slots: list[Slot] = []
    for supply in _together(usable.values()):
        count = int(min(supply.slots, left))
        left -= count
        slots += (
            Slot(
                name=name,
                memory_bytes=supply.memory_bytes * policy.gpus_per_slot,
                resources={**policy.resources, GPU: str(policy.gpus_per_slot)},
                node_selector={LABEL_GPU_PRODUCT: supply.product},
            )
            for name in _names(_model(supply.product), count, placed, nodes_now)
        )
    return tuple(sorted(slots, key=lambda slot: slot.name))


class _Nodes(NamedTuple):
    """By name."""

    usable: frozenset[str]
    silent: frozenset[str]


def _is_merely_silent(node: JsonObject, tolerations: Sequence[JsonObject]) -> bool:
    """Nobody took it away: only its kubelet does not answer."""
    known = [{"key": key, "operator": "Exists"} for key in _OF_SILENCE]
    return not _is_ready(node) and _is_open(node, (*tolerations, *known))


def _is_ready(node: JsonObject) -> bool:
    conditions = node.get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _is_open(node: JsonObject, tolerations: Sequence[JsonObject]) -> bool:
    """Not cordoned, every taint tolerated."""
    spec = node.get("spec", {})
    return not spec.get("unschedulable") and all(
        any(_tolerates(toleration, taint) for toleration in tolerations)
        for taint in spec.get("taints", ())
        if taint["effect"] in _KEEPS_PODS_AWAY
    )


def _tolerates(toleration: JsonObject, taint: JsonObject) -> bool:
    """As the scheduler judges it."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    exists = toleration.get("operator", "Equal") == "Exists"
    return exists or bool(toleration.get("value", "") == taint.get("value", ""))


def standing_of_node(node: JsonObject, policy: NodePolicy) -> Standing:
    """What the node is for the policy now: of use, silent, or neither."""
    labels = node["metadata"].get("labels", {})
    gpus = _whole(node.get("status", {}).get("allocatable", {}).get(GPU))
    supply = Supply(
        product=labels.get(LABEL_GPU_PRODUCT, ""),
        memory_bytes=_whole(labels.get(LABEL_GPU_MEMORY)) * _MIB,
        slots=gpus // policy.gpus_per_slot,
    )
    if not all(supply):
        return Standing()
    if _is_ready(node) and _is_open(node, policy.tolerations):
        return Standing(offer=supply)
    return Standing(is_silent=_is_merely_silent(node, policy.tolerations))


def _together(offers: Iterable[Supply]) -> list[Supply]:
    """The offers of nodes with GPUs of one model as one, in order of product."""
    found: dict[str, list[Supply]] = defaultdict(list)
    for offer in offers:
        found[offer.product].append(offer)
    return [
        Supply(
            product=product,
            memory_bytes=min(offer.memory_bytes for offer in same),
            slots=sum(offer.slots for offer in same),
        )
        for product, same in sorted(found.items())
    ]


def _whole(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isdecimal() else 0


def _model(product: str) -> str:
    """The product's name as part of a slot's: NVIDIA-A100-SXM4-80GB becomes a100-sxm4-80gb."""
    plain = re.sub(r"[^a-z0-9]+", "-", product.lower()).removeprefix("nvidia-").strip("-")
    if len(plain) <= _MAX_MODEL:
        return plain
    digest = hashlib.sha256(product.encode()).hexdigest()[:_DIGEST]
    return f"{plain[: _MAX_MODEL - _DIGEST - 1].rstrip('-')}-{digest}"


def _names(model: str, count: int, placed: Mapping[str, Placed], nodes: _Nodes) -> list[str]:
    """`count` names of slots; those whose trainer is on a usable node stay, then the lowest.

    A slot whose trainer is on a node that cannot be used any more is not offered: so the hub moves
    the experts that are about to be lost, not others. Where the node is merely silent and there is
    room elsewhere, the slot stays: its trainer is replaced there, and keeps its experts. But not
    once its pod is being deleted, for only the node could end it: that would keep the room empty.
    """
    pattern = re.compile(rf"{re.escape(model)}-(\d+)")
    ours = sorted((name for name in placed if pattern.fullmatch(name)), key=_number)
    waiting = [name for name in ours if not placed[name].is_ending]
    kept = [name for name in ours if placed[name].node in nodes.usable][:count]
    kept += [name for name in waiting if placed[name].node in nodes.silent][: count - len(kept)]
    index = 0
    while len(kept) < count:
        if (name := f"{model}-{index}") not in kept and name not in ours:
            kept.append(name)
        index += 1
    return kept


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])
