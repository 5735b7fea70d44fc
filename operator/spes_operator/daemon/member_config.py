"""The member's settings file: what its admin lends, and what no hub can make it run. Pure.

Read by `member`. Paths of the invitation and of kubeconfigs are no part of it, and no secrets are.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator
from spes_api.kinds import ImageName
from spes_api.quantity import QUANTITY_PATTERN, QuantityBytes
from spes_api.schema_base import ApiModel, Labels, Name, Positive, Resources, Word

from spes_operator.daemon.hub_config import NamespaceName, Port
from spes_operator.member.pod_manifest import WorkVolume
from spes_operator.member.view import GPU_LABELS, MemberLimits

_LIMITS, _WORK_VOLUME = MemberLimits(), WorkVolume()

FilePath = Annotated[str, StringConstraints(min_length=1, max_length=4096)]


class SlotConfig(ApiModel):
    """One place for a trainer, declared by hand."""

    name: Name
    """Unique in the member; the peer is <member>.<slot>."""
    memory_bytes: Annotated[QuantityBytes, Field(alias="memory", ge=1)]
    """Device memory that experts may be placed by, as a Kubernetes quantity."""
    activation_bytes: Annotated[QuantityBytes | None, Field(alias="activation")] = None
    """Peak of activations and workspace. Absent: estimated."""
    resources: Resources = Field(default_factory=dict)
    """Kubernetes resource limits of its pod, devices among them."""
    node_selector: Labels = Field(default_factory=dict)
    """Of its pod."""
    env: Labels = Field(default_factory=dict)
    """Of its trainer, for example OMP_NUM_THREADS."""


class NodesConfig(ApiModel):
    """Slots found by the labels and the allocatable GPUs of the cluster's nodes."""

    gpus_per_slot: Annotated[int, Field(ge=1, le=64)] = 1
    """Of one trainer."""
    resources: Resources = Field(default_factory=dict)
    """Limits of each trainer's pod besides its GPUs, for example {memory: 64Gi}."""
    max_gpus: Positive | None = None
    """Lent at most. Absent: all."""


class HostPath(ApiModel):
    """A folder that every node has; the namespace's pod security must allow it."""

    path: FilePath
    """Absolute."""


class DatasetConfig(ApiModel):
    """A dataset that the member's trainers can read, from exactly one kind of volume."""

    name: Name
    """As jobs name it; trainers see it at /data/NAME."""
    manifest_sha256: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{64})?$")] = ""
    """Of the list of its files; members that share a split must have the same."""
    claim: Word = ""
    """A PersistentVolumeClaim of the namespace."""
    host_path: HostPath | None = None
    """A folder of the nodes."""
    image: ImageName = ""
    """An image that holds the files."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [one for one in (self.claim, self.host_path, self.image) if one]
        if len(given) != 1:
            raise ValueError(f"must hold one of claim, hostPath, image (got {len(given)})")
        return self


class WorkVolumeConfig(ApiModel):
    """What holds a trainer's checkpoints."""

    type: Literal["pvc", "emptyDir"] = _WORK_VOLUME.kind
    """With emptyDir a replaced pod begins with fresh optimizer moments."""
    size: Annotated[str, StringConstraints(pattern=QUANTITY_PATTERN, max_length=32)] = (
        _WORK_VOLUME.size
    )
    """Of a pvc."""
    storage_class: Word = ""
    """Of a pvc. Empty: the cluster's default."""


class Toleration(ApiModel):
    """A taint that trainers' pods tolerate, as Kubernetes writes it."""

    key: Word = ""
    """Empty with Exists: every taint."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Whether the value matters."""
    value: Word = ""
    """With Equal."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    """Empty: all."""


class LimitsConfig(ApiModel):
    """The veto: what is refused whatever the hub asks."""

    images: Annotated[list[ImageName], Field(max_length=64)] = Field(default_factory=list)
    """Allowed besides the member's own."""
    priority_classes: Annotated[list[Word], Field(max_length=64)] = Field(default_factory=list)
    """Allowed; none by default."""
    queues: Annotated[list[Word], Field(max_length=64)] = Field(default_factory=list)
    """Of Kueue, allowed; none by default."""
    node_selector_keys: Annotated[list[Word], Field(max_length=64)] = Field(
        default_factory=lambda: list(GPU_LABELS)
    )
    """Labels by which jobs may choose nodes."""
    max_jobs: Positive | None = None
    """Trainers at a time. Absent: one for each slot."""


class MemberConfig(ApiModel):
    """All of it."""

    namespace: NamespaceName = "spes"
    """Where the agent and its trainers live."""
    image: Annotated[str, StringConstraints(min_length=1, max_length=512)]
    """Of trainers whose job names none."""
    slots: Annotated[list[SlotConfig], Field(max_length=512)] = Field(default_factory=list)
    """Declared by hand; then nodes are not looked at."""
    nodes: NodesConfig = NodesConfig()
    """How nodes become slots, if none is declared by hand."""
    datasets: Annotated[list[DatasetConfig], Field(max_length=64)] = Field(default_factory=list)
    """What trainers can read."""
    work_volume: WorkVolumeConfig = WorkVolumeConfig()
    """Of each trainer."""
    tolerations: Annotated[list[Toleration], Field(max_length=16)] = Field(
        default_factory=lambda: [Toleration(key="nvidia.com/gpu", operator="Exists")]
    )
    """Of trainers' pods; nodes with other taints lend nothing."""
    image_pull_secrets: Annotated[list[Word], Field(max_length=8)] = Field(default_factory=list)
    """In the namespace."""
    runtime_class: Word = ""
    """Of trainers' pods. Empty: the cluster's default."""
    env: Labels = Field(default_factory=dict)
    """Of every trainer, for example OMP_NUM_THREADS; a slot's own comes first."""
    limits: LimitsConfig = LimitsConfig()
    """The veto."""
    orphan_after_seconds: Annotated[int, Field(ge=60, le=31_536_000)] = int(
        _LIMITS.orphan_after.total_seconds()
    )
    """A trainer without hub and without Session is stopped after that."""
    heartbeat_seconds: Annotated[int, Field(ge=1, le=600)] = 10
    """From one renewal of the Lease to the next; the MemberCluster says the same."""
    state: FilePath = "/var/lib/spes-member"
    """A folder of the agent's own; it may be empty at each start."""
    address: Word = "0.0.0.0"  # noqa: S104 - in a pod, whose network policy decides
    """Where probes and metrics are served."""
    probe_port: Port = 8080
    """Of /healthz; 0: not served."""
    metrics_port: Port = 9090
    """Of /metrics and /readyz; 0: not served."""

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        for field, names in (
            ("slots", [slot.name for slot in self.slots]),
            ("datasets", [dataset.name for dataset in self.datasets]),
        ):
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"{field} must not name one twice (got {', '.join(twice)})")
        return self
