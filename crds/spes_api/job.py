"""SpesJob: one training job over member clusters. What every field means, its unit and its default."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from spes_api.model import ModelConfig, PresetName, preset_config
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

Positive = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Precision = Literal["FP32", "BF16"]


class ModelSpec(ApiModel):
    """Which model is trained; exactly one of its fields. Immutable."""

    preset: PresetName | None = None
    """A named shape."""
    config: ModelConfig | None = None
    """A shape of your own."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [name for name in ("preset", "config") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"set exactly one of preset, config (got {given or 'none'})")
        return self

    def resolve(self) -> ModelConfig:
        """The shape, whichever way it was given."""
        if self.config is not None:
            return self.config
        assert self.preset is not None  # _exactly_one
        return preset_config(self.preset)


class DatasetSource(ApiModel):
    """A dataset that members declare and mount read-only."""

    name: Name
    path: Annotated[str, StringConstraints(max_length=512)] = "."
    """Folder or file inside the dataset; relative, without `..`."""


class Source(ApiModel):
    """Where documents come from; exactly one of its fields."""

    builtin: Literal["python-stdlib"] | None = None
    """Text that every machine has: the sources of Python's standard library."""
    dataset: DatasetSource | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.builtin is None) == (self.dataset is None):
            raise ValueError("set exactly one of builtin, dataset")
        return self


class TokenizerSpec(ApiModel):
    """How text becomes token ids."""

    name: Literal["bytes"] = "bytes"
    """`bytes`: the token id is the byte's value; any file is accepted."""


class DataSpec(ApiModel):
    """What is read, how it is cut, who reads which part."""

    sources: Annotated[list[Source], Field(min_length=1, max_length=64)]
    include: Annotated[str, StringConstraints(max_length=128)] = "*"
    """Glob on file names."""
    tokenizer: TokenizerSpec = TokenizerSpec()
    sequence_tokens: Annotated[int, Field(ge=8, le=1_048_576)] = 2048
    split: Literal["Disjoint", "Overlap", "Local"] = "Disjoint"
    """Disjoint: no sequence is trained twice in an epoch. Overlap: each peer its own order of all. Local: each member its own data."""
    held_out_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Share of documents kept for evaluation, by hash of the relative path."""


class OptimizerSpec(ApiModel):
    """AdamW with decoupled decay on every trained tensor."""

    learning_rate: Annotated[float, Field(gt=0, le=1)]
    betas: Annotated[
        list[Annotated[float, Field(ge=0, lt=1)]], Field(min_length=2, max_length=2)
    ] = [0.9, 0.95]
    epsilon: Annotated[float, Field(gt=0)] = 1.0e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    clip_norm: Annotated[float, Field(gt=0)] = 1.0
    """Norm of the local trained tensors' gradient above which it is scaled down."""


class ScheduleSpec(ApiModel):
    """Warm-up, then cosine to maxTokens, in global tokens."""

    warmup_tokens: Annotated[int, Field(ge=0)] | None = None
    """Absent: 2 % of maxTokens."""
    final_fraction: Fraction = 0.1
    """Learning rate at the end (and at the start of the warm-up) as a share of the peak."""


class LossSpec(ApiModel):
    """Coefficients of the auxiliary losses (SPES, section 4 and its released configuration)."""

    load_balance: Annotated[float, Field(ge=0)] = 0.01
    z_loss: Annotated[float, Field(ge=0)] = 1.0e-4
    router_z_loss: Annotated[float, Field(ge=0)] = 0.001


class EvaluationSpec(ApiModel):
    """When and on how much held-out text the committed model is evaluated."""

    every_rounds: Positive = 1
    tokens: Positive = 65_536


class TrainingSpec(ApiModel):
    """How long and how each peer trains."""

    max_tokens: Positive
    """All peers together."""
    batch_tokens: Positive
    """Per peer and optimizer step; a multiple of data.sequenceTokens."""
    micro_batch_tokens: Positive | None = None
    """Absent: batchTokens."""
    optimizer: OptimizerSpec
    schedule: ScheduleSpec = ScheduleSpec()
    losses: LossSpec = LossSpec()
    precision: Precision = "BF16"
    """BF16 is autocast on GPUs; a CPU computes in FP32 whatever this says."""
    seed: Annotated[int, Field(ge=0)] = 0
    evaluation: EvaluationSpec = EvaluationSpec()

    @property
    def warmup_tokens(self) -> int:
        """Tokens of warm-up, the default resolved."""
        given = self.schedule.warmup_tokens
        return self.max_tokens // 50 if given is None else given

    @property
    def micro_tokens(self) -> int:
        """Tokens of a micro-batch, the default resolved."""
        return self.micro_batch_tokens or self.batch_tokens


class AlgorithmSpec(ApiModel):
    """How what peers push becomes the next version."""

    name: Literal["SPES"] = "SPES"
    weights: Literal["Uniform", "Tokens"] | None = None
    """Of a peer's shared delta. Absent: Uniform, or Tokens when sync.everySeconds is set."""


class MembersSpec(ApiModel):
    """Which members take part, and how many."""

    selector: Annotated[dict[str, str], Field(max_length=16)] = {}
    """Labels a member must carry; {} selects all."""
    min: Annotated[int, Field(ge=1, le=512)] = 1
    """No round opens with fewer ready peers."""
    max: Annotated[int, Field(ge=1, le=512)] = 64

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min must be at most max (got min {self.min}, max {self.max})")
        return self


class ExpertsSpec(ApiModel):
    """Limits on expert ownership."""

    max_per_peer: Positive | None = None
    """Absent: memory decides."""


class CompressionSpec(ApiModel):
    """Codec of each direction."""

    uplink: Literal["FP32"] = "FP32"
    downlink: Literal["FP32"] = "FP32"


class SyncSpec(ApiModel):
    """When peers synchronise and how long the server waits."""

    every_steps: Positive | None = None
    """H: optimizer steps per round."""
    every_seconds: Positive | None = None
    """T: a round's training time. With everySteps too, whichever comes first; a peer does at least one step."""
    timeout_seconds: Positive = 600
    """The round's hard limit at the server."""
    quorum: Annotated[float, Field(gt=0, le=1)] = 0.66
    """Share of the expected peers that lets a round close at its deadline."""
    compression: CompressionSpec = CompressionSpec()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.every_steps is None and self.every_seconds is None:
            raise ValueError("set at least one of everySteps, everySeconds")
        if self.every_seconds is not None and self.timeout_seconds <= self.every_seconds:
            raise ValueError(
                f"timeoutSeconds must be above everySeconds (got {self.timeout_seconds} and {self.every_seconds})"
            )
        return self


class ReassignmentSpec(ApiModel):
    """When experts move away from a peer that is gone."""

    mode: Literal["Automatic", "Manual"] = "Automatic"
    unreachable_after_seconds: Positive = 40
    """Silence after which a member gets no new experts and leaves the open round."""
    reassign_after_seconds: Positive = 180
    """Silence after which its experts move."""
    max_moves_per_minute: Annotated[int, Field(ge=0)] = 0
    """Limits moves made for balance only; 0: no limit."""
    cooldown_after_hub_restart_seconds: Seconds = 120

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.reassign_after_seconds <= self.unreachable_after_seconds:
            raise ValueError(
                "reassignAfterSeconds must be above unreachableAfterSeconds "
                f"(got {self.reassign_after_seconds} and {self.unreachable_after_seconds})"
            )
        return self


class TrainerSpec(ApiModel):
    """The pod that a peer runs in."""

    image: Annotated[str, StringConstraints(max_length=512)] = ""
    """Empty: the chart's own."""
    num_proc_per_node: Annotated[int, Field(ge=1, le=64)] = 1
    resources: Annotated[dict[str, str], Field(max_length=16)] = {}
    """Kubernetes resource limits, for example {nvidia.com/gpu: "8"}."""
    grace_period_seconds: Annotated[int, Field(ge=1, le=86_400)] = 120
    activation_bytes: Annotated[int, Field(ge=0)] | None = None
    """Peak memory of activations and workspace. Absent: estimated, then measured."""


class StorageSpec(ApiModel):
    """The sync server's volume."""

    size: Annotated[str, StringConstraints(max_length=32)] = "20Gi"
    storage_class: Annotated[str, StringConstraints(max_length=253)] = ""


class CheckpointSpec(ApiModel):
    """What is kept on disk."""

    every_rounds: Positive = 1
    keep_last: Positive = 3
    storage: StorageSpec = StorageSpec()
    reclaim: Literal["Keep", "Delete"] = "Keep"


class SpesJobSpec(ApiModel):
    """What the user asks for."""

    model: ModelSpec
    data: DataSpec
    training: TrainingSpec
    algorithm: AlgorithmSpec = AlgorithmSpec()
    members: MembersSpec = MembersSpec()
    experts: ExpertsSpec = ExpertsSpec()
    sync: SyncSpec
    reassignment: ReassignmentSpec = ReassignmentSpec()
    trainer: TrainerSpec = TrainerSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    suspend: bool = False

    @model_validator(mode="after")
    def _batches_fit(self) -> Self:
        sequence, batch, micro = (
            self.data.sequence_tokens,
            self.training.batch_tokens,
            self.training.micro_tokens,
        )
        if batch % sequence:
            raise ValueError(
                f"training.batchTokens must be a multiple of data.sequenceTokens (got {batch} and {sequence})"
            )
        if micro % sequence or batch % micro:
            raise ValueError(
                "training.microBatchTokens must be a multiple of data.sequenceTokens and divide batchTokens "
                f"(got {micro}, {sequence}, {batch})"
            )
        return self

    @property
    def weights(self) -> Literal["Uniform", "Tokens"]:
        """How shared deltas are weighted, the default resolved."""
        return self.algorithm.weights or ("Tokens" if self.sync.every_seconds else "Uniform")


class MemberCounts(ApiModel):
    """Placed peers that are ready, and those wanted."""

    ready: int = 0
    desired: int = 0


class ExpertCounts(ApiModel):
    """How many experts have an owner."""

    total: int = 0
    owned: int = 0
    parked: int = 0


class OwnershipRow(ApiModel):
    """What one peer owns."""

    peer: PeerName
    experts: Text
    """Ranges, for example "0-3,6"."""


class SpesJobStatus(ApiModel):
    """How the job is; written by the hub alone."""

    observed_generation: int = 0
    ownership_epoch: int = 0
    round: int = 0
    tokens: int = 0
    loss: float | None = None
    """Held-out, of the last evaluated version; nats per token."""
    members: MemberCounts = MemberCounts()
    experts: ExpertCounts = ExpertCounts()
    ownership: Annotated[list[OwnershipRow], Field(max_length=64)] = []
    sync_endpoint: str = ""
    conditions: Annotated[list[Condition], Field(max_length=16)] = []


class SpesJob(ApiModel):
    """The object: envelope, spec, status."""

    api_version: Literal["spes.dev/v1alpha1"] = API_VERSION
    kind: Literal["SpesJob"] = "SpesJob"
    metadata: Metadata
    spec: SpesJobSpec
    status: SpesJobStatus = SpesJobStatus()
