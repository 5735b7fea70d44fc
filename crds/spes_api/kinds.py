"""MemberCluster, MemberReport, TrainerAssignment: how hub and members speak about each other."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from spes_api.schema_base import (
    API_VERSION,
    BACKOFF_LIMIT,
    ApiModel,
    BackoffLimit,
    Conditions,
    Count,
    Labels,
    Metadata,
    Name,
    PeerName,
    Pem,
    Positive,
    Resources,
    Seconds,
    ShortText,
    Text,
    Word,
    list_map,
)

ImageName = Annotated[str, StringConstraints(max_length=512)]
# Resource -> quantity, as a ResourceQuota lists them.
Quantities = Annotated[dict[str, ShortText], Field(max_length=64)]


class HeartbeatSpec(ApiModel):
    """How often a member shows that it lives."""

    interval_seconds: Annotated[int, Field(ge=1, le=600)] = 10
    """From one renewal of its Lease to the next."""


class MemberClusterSpec(ApiModel):
    """What the hub's admin decides about a member."""

    accepted: bool = False
    """Whether it may take part."""
    unschedulable: bool = False
    """Cordon and drain: its experts move, its trainers stop."""
    expected_cluster_id: Annotated[ShortText, Field(alias="expectedClusterID")] = ""
    """UID of the member's kube-system namespace. Empty: pinned at the first report."""
    heartbeat: HeartbeatSpec = HeartbeatSpec()
    """Liveness."""


class MemberClusterStatus(ApiModel):
    """How the hub sees a member; written by the hub alone."""

    observed_generation: Count = 0
    """The spec's generation that this status speaks of."""
    cluster_id: Annotated[ShortText, Field(alias="clusterID")] = ""
    """UID of its kube-system namespace, pinned at the first report."""
    slots: Count = 0
    """Slots offered."""
    gpus: Count = 0
    """GPUs in them."""
    jobs: Count = 0
    """SpesJobs that have assignments there."""
    version: ShortText = ""
    """Of its agent."""
    closed_invitation: ShortText = ""
    """The last invitation whose token was made void, since its agent had one of its own."""
    last_heartbeat_observed: Word | None = None
    """Of a silent member, by the hub's clock, RFC 3339; absent while its heartbeats arrive."""
    conditions: Conditions = Field(default_factory=list)
    """Ready sums the others up."""


class MemberCluster(ApiModel):
    """An institution's cluster, as the hub knows it; its labels are matched by jobs."""

    api_version: Literal["spes.dev/v1alpha1"] = API_VERSION
    kind: Literal["MemberCluster"] = "MemberCluster"
    metadata: Metadata
    spec: MemberClusterSpec = MemberClusterSpec()
    status: MemberClusterStatus = MemberClusterStatus()


class SlotOffer(ApiModel):
    """One place for a trainer: a shape of device that the member lends."""

    name: Name
    """Unique in the member; the peer is <member>.<name>."""
    memory_bytes: Positive
    """Device memory."""
    activation_bytes: Count | None = None
    """Measured peak of activations; absent: estimated."""
    resources: Resources = Field(default_factory=dict)
    """What its pod asks Kubernetes for."""


class DatasetOffer(ApiModel):
    """A dataset that the member has."""

    name: Name
    """As jobs name it."""
    manifest_sha256: Annotated[str, StringConstraints(max_length=64)] = ""
    """Of the list of its files; members with another list have other data."""


class QuotaReport(ApiModel):
    """A ResourceQuota of the namespace that trainers run in."""

    name: Word
    """Of the ResourceQuota."""
    hard: Quantities = Field(default_factory=dict)
    """Limits."""
    used: Quantities = Field(default_factory=dict)
    """Taken now, by whomever."""


class CredentialReport(ApiModel):
    """The token with which the member reaches the hub."""

    expires_at: Word
    """As the hub set it, RFC 3339."""
    persisted: bool
    """It is kept in the member's cluster, so that the invitation is needed no more."""


class LimitsReport(ApiModel):
    """What a hub can make the member run; all else is refused as VetoedByMember."""

    images: Annotated[list[ImageName], Field(max_length=64)] = Field(default_factory=list)
    """Empty string: the member's own image."""
    priority_classes: Annotated[list[Word], Field(max_length=64)] = Field(default_factory=list)
    """In its cluster."""
    queues: Annotated[list[Word], Field(max_length=64)] = Field(default_factory=list)
    """Of Kueue in its cluster."""
    node_selector_keys: Annotated[list[Word], Field(max_length=64)] = Field(default_factory=list)
    """Labels by which a job may choose nodes."""
    max_jobs: Count | None = None
    """Trainers at a time. Absent: one for each slot."""


class MemberReportStatus(ApiModel):
    """What a member says about itself."""

    cluster_id: Annotated[ShortText, Field(alias="clusterID")] = ""
    """UID of its kube-system namespace."""
    version: ShortText = ""
    """Of the member agent."""
    kubernetes_version: ShortText = ""
    """Of its API server."""
    credential: CredentialReport | None = None
    """Absent: it needs none, or has not renewed the one of its invitation yet."""
    quotas: Annotated[
        list[QuotaReport], Field(max_length=8, json_schema_extra=list_map("name"))
    ] = Field(default_factory=list)
    """Within which its trainers must stay."""
    limits: LimitsReport = LimitsReport()
    """Its veto."""
    slots: Annotated[list[SlotOffer], Field(max_length=512, json_schema_extra=list_map("name"))] = (
        Field(default_factory=list)
    )
    """What it lends now."""
    datasets: Annotated[
        list[DatasetOffer], Field(max_length=64, json_schema_extra=list_map("name"))
    ] = Field(default_factory=list)
    """What its trainers can read."""


class MemberReport(ApiModel):
    """Written by the member in its own namespace on the hub."""

    api_version: Literal["spes.dev/v1alpha1"] = API_VERSION
    kind: Literal["MemberReport"] = "MemberReport"
    metadata: Metadata
    status: MemberReportStatus = MemberReportStatus()


class TrainerTemplate(ApiModel):
    """The frozen part of the SpesJob's trainer that a member needs."""

    image: ImageName = ""
    """Empty: the chart's own."""
    num_proc_per_node: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes of a pod."""
    resources: Resources = Field(default_factory=dict)
    """Kubernetes resource limits."""
    grace_period_seconds: Seconds = 120
    """From SIGTERM to SIGKILL."""
    datasets: Annotated[list[Name], Field(max_length=64)] = Field(default_factory=list)
    """To mount read-only."""
    node_selector: Labels = Field(default_factory=dict)
    """Of the nodes that may run it; the member allows keys one by one."""
    priority_class_name: Word = ""
    """In the member's cluster, where it must be allowed. Empty: the cluster's default."""
    queue_name: ShortText = ""
    """Of Kueue in the member's cluster, where it must be allowed. Empty: no queue."""


class SyncTarget(ApiModel):
    """Where the trainer finds its sync server."""

    endpoint: Word
    """host:port."""
    server_name: Word = ""
    """Name in the server's certificate. Empty: the host."""
    ca_bundle: Pem
    """Certificate authority, PEM."""


class TrainerAssignmentSpec(ApiModel):
    """What one slot runs.

    The last two fields inform people; the trainer takes its plan from its Session.
    """

    job_uid: Annotated[str, Field(alias="jobUID", min_length=1, max_length=63)]
    """Of the SpesJob: a new job of the same name is another."""
    slot: Name
    """The slot it runs in."""
    desired: Literal["Run", "Drain", "Stop"] = "Run"
    """Drain: push what is done, then stop."""
    template: TrainerTemplate
    """The trainer's pod."""
    template_hash: ShortText
    """Another hash makes another pod."""
    backoff_limit: BackoffLimit = BACKOFF_LIMIT
    """How often the trainer may fail; of a Job that is made from now on."""
    join_secret: Word
    """Secret with the one-time token."""
    sync: SyncTarget
    """Its sync server."""
    experts: Text = ""
    """Owned, as ranges."""
    ownership_epoch: Count = 0
    """Of these experts."""


class TrainerAssignmentStatus(ApiModel):
    """Pod facts only; written by the member alone."""

    observed_generation: Count = 0
    """The spec's generation that this status speaks of."""
    pod_name: Word = ""
    """In the member's cluster."""
    restarts: Count = 0
    """Of the trainer."""
    exit_code: Annotated[int, Field(ge=-255, le=255)] | None = None
    """Of the last trainer that ended; negative: the signal that ended it."""
    message: Text = ""
    """One sentence, for people."""
    conditions: Conditions = Field(default_factory=list)
    """Ready sums the others up."""


class TrainerAssignment(ApiModel):
    """Spec by the hub, status by the member; lives in the member's namespace on the hub."""

    api_version: Literal["spes.dev/v1alpha1"] = API_VERSION
    kind: Literal["TrainerAssignment"] = "TrainerAssignment"
    metadata: Metadata
    spec: TrainerAssignmentSpec
    status: TrainerAssignmentStatus = TrainerAssignmentStatus()

    @property
    def peer(self) -> PeerName:
        """The trainer's name in its job, <member>.<slot>."""
        return f"{self.metadata.namespace.removeprefix('spes-member-')}.{self.spec.slot}"
