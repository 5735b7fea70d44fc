"""From the member's settings file to what each part of the agent is given. Pure."""

from __future__ import annotations

from datetime import timedelta

from spes_operator.daemon.member_config import DatasetConfig, MemberConfig, SlotConfig
from spes_operator.k8s.api import JsonObject
from spes_operator.member.cluster_inventory import InventorySettings
from spes_operator.member.inventory import NodePolicy
from spes_operator.member.pod_manifest import PodSettings, WorkVolume
from spes_operator.member.view import MemberLimits, Slot


def limits(config: MemberConfig) -> MemberLimits:
    """The veto; the member's own image is always allowed, named or not."""
    given = config.limits
    return MemberLimits(
        images=frozenset({"", config.image, *given.images}),
        priority_classes=frozenset(given.priority_classes),
        queues=frozenset(given.queues),
        node_selector_keys=frozenset(given.node_selector_keys),
        max_jobs=given.max_jobs,
        orphan_after=timedelta(seconds=config.orphan_after_seconds),
    )


def pod_settings(config: MemberConfig) -> PodSettings:
    """Of every trainer's pod."""
    volume = config.work_volume
    return PodSettings(
        namespace=config.namespace,
        image=config.image,
        work_volume=WorkVolume(
            kind=volume.type, size=volume.size, storage_class=volume.storage_class
        ),
        datasets={dataset.name: _volume_source(dataset) for dataset in config.datasets},
        tolerations=_tolerations(config),
        image_pull_secrets=tuple(config.image_pull_secrets),
        runtime_class=config.runtime_class,
        env=config.env,
    )


def inventory_settings(config: MemberConfig, version: str) -> InventorySettings:
    """What is lent."""
    policy = NodePolicy(
        gpus_per_slot=config.nodes.gpus_per_slot,
        tolerations=_tolerations(config),
        resources=config.nodes.resources,
        max_gpus=config.nodes.max_gpus,
    )
    return InventorySettings(
        namespace=config.namespace,
        version=version,
        slots=tuple(_slot(slot) for slot in config.slots),
        nodes=None if config.slots else policy,
        datasets={dataset.name: dataset.manifest_sha256 for dataset in config.datasets},
    )


def _slot(given: SlotConfig) -> Slot:
    return Slot(
        name=given.name,
        memory_bytes=given.memory_bytes,
        activation_bytes=given.activation_bytes,
        resources=given.resources,
        node_selector=given.node_selector,
        env=given.env,
    )


def _volume_source(dataset: DatasetConfig) -> JsonObject:
    if dataset.host_path:
        return {"hostPath": {"path": dataset.host_path.path, "type": "Directory"}}
    if dataset.image:
        return {"image": {"reference": dataset.image}}
    return {"persistentVolumeClaim": {"claimName": dataset.claim, "readOnly": True}}


def _tolerations(config: MemberConfig) -> tuple[JsonObject, ...]:
    return tuple(
        {key: value for key, value in one.model_dump(by_alias=True).items() if value}
        for one in config.tolerations
    )
