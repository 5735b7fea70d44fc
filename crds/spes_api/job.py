"""SpesJob: one training job over member clusters.

The parts of its spec are in `training` (what is trained), `data` (on what), `algorithm` (how the
peers' work is joined) and `elasticity` (with whom); all of them can be imported from here.
"""

from __future__ import annotations

import json
from typing import Literal, Self

from pydantic import model_validator

from spes_api.algorithm import AlgorithmSpec, MergeSpec, OuterSpec
from spes_api.data import DatasetPath, DatasetSource, DataSpec, Source, TokenizerSpec
from spes_api.elasticity import (
    BufferSpec,
    CheckpointSpec,
    CompressionSpec,
    ExpertsSpec,
    MembersSpec,
    ReassignmentSpec,
    StorageSpec,
    SyncSpec,
    TrainerSpec,
)
from spes_api.schema_base import (
    API_VERSION,
    BACKOFF_LIMIT,
    ApiModel,
    BackoffLimit,
    Cel,
    Metadata,
    PositiveSeconds,
    Seconds,
    cel_rules,
)
from spes_api.status import ExpertCounts, MemberCounts, OwnershipRow, SpesJobStatus
from spes_api.training import (
    EvaluationSpec,
    LossSpec,
    ModelSpec,
    OptimizerSpec,
    Precision,
    ScheduleSpec,
    TrainingSpec,
    UpcycleSpec,
)

__all__ = [
    "AlgorithmSpec",
    "BufferSpec",
    "CheckpointSpec",
    "CompressionSpec",
    "DataSpec",
    "DatasetPath",
    "DatasetSource",
    "EvaluationSpec",
    "ExpertCounts",
    "ExpertsSpec",
    "LossSpec",
    "MemberCounts",
    "MembersSpec",
    "MergeSpec",
    "ModelSpec",
    "OptimizerSpec",
    "OuterSpec",
    "OwnershipRow",
    "Precision",
    "ReassignmentSpec",
    "ScheduleSpec",
    "Source",
    "SpesJob",
    "SpesJobSpec",
    "SpesJobStatus",
    "StorageSpec",
    "SyncSpec",
    "TokenizerSpec",
    "TrainerSpec",
    "TrainingSpec",
    "UpcycleSpec",
    "changed_immutable_fields",
]

# Token ids that the tokenizer `bytes` can produce.
NUM_BYTES = 256
# Paths inside the spec that cannot change: versions, data order or ownership depend on them.
IMMUTABLE_FIELDS = (
    "model",
    "data.tokenizer",
    "data.sequenceTokens",
    "training.seed",
    "algorithm.name",
)

# Fields of the spec that no sync server needs to know.
_OF_THE_HUB = {
    "active_deadline_seconds",
    "pre_running_deadline_seconds",
    "backoff_limit",
    "ttl_seconds_after_finished",
}

# Where a job may spell out a shape, and when it does not.
_SHAPES = {
    "model.config": "!has(self.model.config)",
    "model.upcycleFrom.config": "!has(self.model.upcycleFrom)"
    " || !has(self.model.upcycleFrom.config)",
}


def _unchanged(path: str) -> Cel:
    """The transition rule of an immutable field; guarded, so that an absent one is no error."""
    keys = path.split(".")
    inner = [".".join(keys[: length + 1]) for length in range(len(keys))]
    present = " && ".join(f"has({side}.{key})" for side in ("self", "oldSelf") for key in inner)
    return Cel(
        f"!({present}) || self.{path} == oldSelf.{path}",
        f"{path} cannot be changed; delete the job and create another",
    )


class SpesJobSpec(ApiModel):
    """What the user asks for."""

    model_config = cel_rules(
        Cel(
            "self.training.batchTokens % self.data.sequenceTokens == 0",
            "training.batchTokens must be a multiple of data.sequenceTokens",
        ),
        *(
            Cel(
                f"has(self.data.tokenizer) && has(self.data.tokenizer.path) || {absent}"
                f" || self.{shape}.vocabulary >= {NUM_BYTES}",
                f"{shape} must have a vocabulary of at least {NUM_BYTES} for the tokenizer bytes",
            )
            for shape, absent in _SHAPES.items()
        ),
        Cel(
            "!has(self.training.microBatchTokens)"
            " || (self.training.microBatchTokens % self.data.sequenceTokens == 0"
            " && self.training.batchTokens % self.training.microBatchTokens == 0)",
            "training.microBatchTokens must be a multiple of data.sequenceTokens"
            " and divide batchTokens",
        ),
        Cel(
            "!has(self.algorithm) || !has(self.algorithm.name)"
            " || self.algorithm.name != 'Centralised'"
            " || has(self.members) && has(self.members.max) && self.members.max == 1",
            "members.max must be 1 for the algorithm Centralised",
        ),
        Cel(
            "!has(self.sync.mode) || self.sync.mode != 'Buffered' || !has(self.algorithm)"
            " || !has(self.algorithm.name) || self.algorithm.name in ['SPES', 'FedAvg']",
            "sync.mode Buffered needs the algorithm SPES or FedAvg",
        ),
        *(_unchanged(path) for path in IMMUTABLE_FIELDS),
    )

    model: ModelSpec
    """What is trained. Immutable."""
    data: DataSpec
    """What it learns from."""
    training: TrainingSpec
    """How each peer trains."""
    algorithm: AlgorithmSpec = AlgorithmSpec()
    """How peers' work is joined."""
    members: MembersSpec = MembersSpec()
    """Who takes part."""
    experts: ExpertsSpec = ExpertsSpec()
    """Limits on expert ownership."""
    sync: SyncSpec
    """When peers synchronise."""
    reassignment: ReassignmentSpec = ReassignmentSpec()
    """When experts move."""
    trainer: TrainerSpec = TrainerSpec()
    """The pod that a peer runs in."""
    checkpoint: CheckpointSpec = CheckpointSpec()
    """What is kept on disk."""
    suspend: bool = False
    """Stop all peers and keep everything."""
    active_deadline_seconds: PositiveSeconds | None = None
    """Time for training, all in all: from the first placement on, but for suspensions. After it the
    job fails (DeadlineExceeded) and its volume stays; a later deadline lets it go on. Absent: no
    limit; `spes run` has none."""
    pre_running_deadline_seconds: PositiveSeconds | None = None
    """Time for a trainer to have a Session, at its start and whenever it was lost; then its experts
    move and another slot is tried. Absent: experts move after reassignment.reassignAfterSeconds."""
    backoff_limit: BackoffLimit = BACKOFF_LIMIT
    """How often a trainer may fail before its slot is given up; preemptions do not count. A change
    holds for the Kubernetes Jobs that are made after it."""
    ttl_seconds_after_finished: Seconds | None = None
    """The job is deleted so long after it completed or failed; 0: at once. Its volume stays, unless
    checkpoint.reclaim is Delete. Absent: it is kept, as the folder of `spes run` is."""

    @model_validator(mode="after")
    def _batches_fit(self) -> Self:
        sequence = self.data.sequence_tokens
        batch, micro = self.training.batch_tokens, self.training.micro_tokens
        if batch % sequence:
            raise ValueError(
                "training.batchTokens must be a multiple of data.sequenceTokens "
                f"(got {batch} and {sequence})"
            )
        if micro % sequence or batch % micro:
            raise ValueError(
                "training.microBatchTokens must be a multiple of data.sequenceTokens and divide "
                f"batchTokens (got {micro}, {sequence}, {batch})"
            )
        return self

    @model_validator(mode="after")
    def _vocabulary_holds_bytes(self) -> Self:
        vocabulary = self.model.resolve().vocabulary
        if self.data.tokenizer.name == "bytes" and vocabulary < NUM_BYTES:
            shape = "model.upcycleFrom.config" if self.model.upcycle_from else "model.config"
            raise ValueError(
                f"{shape} must have a vocabulary of at least {NUM_BYTES} for the tokenizer "
                f"bytes (got {vocabulary})"
            )
        return self

    @model_validator(mode="after")
    def _one_peer_is_central(self) -> Self:
        if self.algorithm.name == "Centralised" and self.members.max != 1:
            raise ValueError(
                "members.max must be 1 for the algorithm Centralised "
                f"(got {self.members.max}): one peer trains everything"
            )
        return self

    @model_validator(mode="after")
    def _buffer_has_an_average(self) -> Self:
        if self.sync.mode == "Buffered" and self.algorithm.name not in ("SPES", "FedAvg"):
            raise ValueError(
                f"sync.mode Buffered needs the algorithm SPES or FedAvg (got {self.algorithm.name})"
            )
        return self

    def canonical_json(self) -> str:
        """What a sync server is told, as the same text everywhere.

        What is at its default is left out, or a running server of the version before would refuse
        fields that it does not know and nobody uses; so is what the hub alone acts on. The API
        server has stored the defaults of the day, so a later release's do not change a job.
        """
        plain = self.model_dump(
            by_alias=True,
            exclude=_OF_THE_HUB,
            exclude_none=True,
            exclude_defaults=True,
            mode="json",
        )
        return json.dumps(plain, sort_keys=True, separators=(",", ":"))

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the datasets that every peer must have, in order."""
        read = {source.dataset.name for source in self.data.sources if source.dataset}
        first = self.model.upcycle_from
        return tuple(sorted(read | ({first.dataset.name} if first else set())))

    @property
    def weights(self) -> Literal["Uniform", "Tokens", "Samples"]:
        """How peers are weighted in an average, the default resolved."""
        by_work = self.sync.every_seconds is not None and self.algorithm.name != "FedNova"
        return self.algorithm.weights or ("Tokens" if by_work else "Uniform")


def changed_immutable_fields(old: SpesJobSpec, new: SpesJobSpec) -> tuple[str, ...]:
    """Paths such as data.sequenceTokens that differ though they must not; defaults are resolved."""
    before, after = (spec.model_dump(by_alias=True, mode="json") for spec in (old, new))
    return tuple(path for path in IMMUTABLE_FIELDS if _at(before, path) != _at(after, path))


def _at(value: object, path: str) -> object:
    for key in path.split("."):
        assert isinstance(value, dict)  # a dumped model
        value = value[key]
    return value


class SpesJob(ApiModel):
    """One mixture-of-experts model, trained by peers of several member clusters."""

    api_version: Literal["spes.dev/v1alpha1"] = API_VERSION
    kind: Literal["SpesJob"] = "SpesJob"
    metadata: Metadata
    spec: SpesJobSpec
    status: SpesJobStatus = SpesJobStatus()
