"""MemberCluster, MemberReport, TrainerAssignment: how hub and members speak about each other."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from spes_api.schema_base import (
    API_VERSION,
    ApiModel,
    Condition,
    Metadata,
    Name,
    PeerName,
    Seconds,
    Text,
)


class HeartbeatSpec(ApiModel):
    """How often a member shows that it lives."""

    interval_seconds: Annotated[int, Field(ge=1, le=600)] = 10


class MemberClusterSpec(ApiModel):
    """What the hub's admin decides about a member."""

    accepted: bool = False
    unschedulable: bool = False
    """Cordon and drain: its experts move, its trainers stop."""
    expected_cluster_id: Annotated[str, StringConstraints(max_length=64)] = ""
    """UID of the member's kube-system namespace. Empty: pinned at the first report."""
    heartbeat: HeartbeatSpec = HeartbeatSpec()


class MemberClusterStatus(ApiModel):
    """How the hub sees a member; written by the hub alone."""

    observed_generation: int = 0
    cluster_id: str = ""
    slots: int = 0
    last_heartbeat_observed: str = ""
    """By the hub's clock."""
    conditions: Annotated[list[Condition], Field(max_length=16)] = []


class MemberCluster(ApiModel):
    """An institution's cluster, as the hub knows it. Cluster-scoped; its labels are matched by jobs."""

    api_version: Literal["spes.dev/v1alpha1"] = API_VERSION
    kind: Literal["MemberCluster"] = "MemberCluster"
    metadata: Metadata
    spec: MemberClusterSpec = MemberClusterSpec()
    status: MemberClusterStatus = MemberClusterStatus()


class SlotOffer(ApiModel):
    """One place for a trainer: a shape of device that the member lends."""

    name: Name
    memory_bytes: Annotated[int, Field(ge=1)]
    activation_bytes: Annotated[int, Field(ge=0)] | None = None
    """Measured peak of activations; absent: estimated."""
    resources: Annotated[dict[str, str], Field(max_length=16)] = {}


class DatasetOffer(ApiModel):
    """A dataset that the member has."""

    name: Name
    manifest_sha256: str = ""


class MemberReportStatus(ApiModel):
    """What a member says about itself."""

    cluster_id: str = ""
    version: str = ""
    slots: Annotated[list[SlotOffer], Field(max_length=512)] = []
    datasets: Annotated[list[DatasetOffer], Field(max_length=64)] = []


class MemberReport(ApiModel):
    """Written by the member in its own namespace on the hub."""

    api_version: Literal["spes.dev/v1alpha1"] = API_VERSION
    kind: Literal["MemberReport"] = "MemberReport"
    metadata: Metadata
    status: MemberReportStatus = MemberReportStatus()


class TrainerTemplate(ApiModel):
    """The frozen part of the SpesJob's trainer that a member needs."""

    image: str = ""
    num_proc_per_node: Annotated[int, Field(ge=1, le=64)] = 1
    resources: Annotated[dict[str, str], Field(max_length=16)] = {}
    grace_period_seconds: Seconds = 120
    datasets: Annotated[list[Name], Field(max_length=64)] = []


class SyncTarget(ApiModel):
    """Where the trainer finds its sync server."""

    endpoint: str
    """host:port."""
    server_name: str = ""
    ca_bundle: str
    """PEM."""


class TrainerAssignmentSpec(ApiModel):
    """What one slot runs. The last two fields inform people; the trainer takes its plan from its Session."""

    job_uid: Annotated[str, Field(alias="jobUID")]
    slot: Name
    desired: Literal["Run", "Drain", "Stop"] = "Run"
    template: TrainerTemplate
    template_hash: str
    join_secret: str
    sync: SyncTarget
    experts: Text = ""
    ownership_epoch: int = 0


class TrainerAssignmentStatus(ApiModel):
    """Pod facts only; written by the member alone."""

    observed_generation: int = 0
    pod_name: str = ""
    restarts: int = 0
    exit_code: int | None = None
    message: Text = ""
    conditions: Annotated[list[Condition], Field(max_length=16)] = []


class TrainerAssignment(ApiModel):
    """Spec by the hub, status by the member; lives in the member's namespace on the hub."""

    api_version: Literal["spes.dev/v1alpha1"] = API_VERSION
    kind: Literal["TrainerAssignment"] = "TrainerAssignment"
    metadata: Metadata
    spec: TrainerAssignmentSpec
    status: TrainerAssignmentStatus = TrainerAssignmentStatus()

    @property
    def peer(self) -> PeerName:
        """ "<member>.<slot>": the trainer's name in its job."""
        return f"{self.metadata.namespace.removeprefix('spes-member-')}.{self.spec.slot}"
