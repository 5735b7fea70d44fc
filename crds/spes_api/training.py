"""What a SpesJob trains: model, data, optimizer, algorithm. Parts of `SpesJobSpec`."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from spes_api.model import ModelConfig, PresetName, preset_config
from spes_api.schema_base import (
    ApiModel,
    Cel,
    Count,
    Fraction,
    Name,
    Positive,
    cel_rules,
)

Precision = Literal["FP32", "BF16"]
NonNegative = Annotated[float, Field(ge=0)]


class ModelSpec(ApiModel):
    """Which model is trained; exactly one of its fields. Immutable."""

    model_config = cel_rules(
        Cel(
            "[has(self.preset), has(self.config)].filter(x, x).size() == 1",
            "must set exactly one of preset, config",
        )
    )

    preset: PresetName | None = None
    """A named shape."""
    config: ModelConfig | None = None
    """A shape of your own."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [name for name in ("preset", "config") if getattr(self, name) is not None]
        if len(given) != 1:
            got = " and ".join(given) or "none"
            raise ValueError(f"must set exactly one of preset, config (got {got})")
        return self

    def resolve(self) -> ModelConfig:
        """The shape, whichever way it was given."""
        if self.config is not None:
            return self.config
        assert self.preset is not None  # _exactly_one
        return preset_config(self.preset)


class DatasetSource(ApiModel):
    """A dataset that members declare and mount read-only."""

    model_config = cel_rules(
        Cel(
            "!has(self.path) || !(self.path.startsWith('/')"
            " || self.path.split('/').exists(part, part == '..'))",
            "path must stay inside the dataset",
        )
    )

    name: Name
    """As the members declare it."""
    path: Annotated[str, StringConstraints(min_length=1, max_length=512)] = "."
    """Folder or file inside the dataset; relative, without `..`."""

    @field_validator("path")
    @classmethod
    def _inside(cls, path: str) -> str:
        if path.startswith("/") or ".." in PurePosixPath(path).parts:
            raise ValueError(f"must stay inside the dataset (got {path!r:.60})")
        return path


class Source(ApiModel):
    """Where documents come from; exactly one of its fields."""

    model_config = cel_rules(
        Cel(
            "[has(self.builtin), has(self.dataset)].filter(x, x).size() == 1",
            "must set exactly one of builtin, dataset",
        )
    )

    builtin: Literal["python-stdlib"] | None = None
    """Text that every machine has: the sources of Python's standard library."""
    dataset: DatasetSource | None = None
    """A dataset that members have."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.builtin is None) == (self.dataset is None):
            got = "none" if self.builtin is None else "both"
            raise ValueError(f"must set exactly one of builtin, dataset (got {got})")
        return self


class TokenizerSpec(ApiModel):
    """How text becomes token ids."""

    name: Literal["bytes"] = "bytes"
    """`bytes`: the token id is the byte's value; any file is accepted."""


class DataSpec(ApiModel):
    """What is read, how it is cut, who reads which part."""

    sources: Annotated[list[Source], Field(min_length=1, max_length=64)]
    """Read in this order."""
    include: Annotated[str, StringConstraints(min_length=1, max_length=128)] = "*"
    """Glob on file names."""
    tokenizer: TokenizerSpec = TokenizerSpec()
    """Immutable."""
    sequence_tokens: Annotated[int, Field(ge=8, le=1_048_576)] = 2048
    """Length of a training sequence. Immutable."""
    split: Literal["Disjoint", "Overlap", "Local"] = "Disjoint"
    """Disjoint: no sequence is trained twice in an epoch. Overlap: each peer reads all, in an order
    of its own. Local: each member reads its own data."""
    held_out_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Share of documents kept for evaluation, by hash of the relative path."""


class OptimizerSpec(ApiModel):
    """AdamW with decoupled decay on every trained tensor."""

    learning_rate: Annotated[float, Field(gt=0, le=1)]
    """Peak, reached at the end of the warm-up."""
    betas: Annotated[
        list[Annotated[float, Field(ge=0, lt=1)]], Field(min_length=2, max_length=2)
    ] = Field(default=[0.9, 0.95])
    """Decay of the first and of the second moment."""
    epsilon: Annotated[float, Field(gt=0)] = 1.0e-8
    """Added to the root of the second moment."""
    weight_decay: NonNegative = 0.1
    """Per step, times the learning rate."""
    clip_norm: Annotated[float, Field(gt=0)] = 1.0
    """Norm of the local trained tensors' gradient above which it is scaled down."""


class ScheduleSpec(ApiModel):
    """Warm-up, then cosine to maxTokens, in global tokens."""

    warmup_tokens: Count | None = None
    """Absent: 2 % of maxTokens."""
    final_fraction: Fraction = 0.1
    """Learning rate at the end (and at the start of the warm-up) as a share of the peak."""


class LossSpec(ApiModel):
    """Coefficients of the auxiliary losses; defaults as in the released SPES configurations."""

    load_balance: NonNegative = 0.01
    """Pulls the router towards equal use of the experts."""
    z_loss: NonNegative = 1.0e-4
    """Keeps the output logits small."""
    router_z_loss: NonNegative = 0.001
    """Keeps the router's logits small."""


class EvaluationSpec(ApiModel):
    """When and on how much held-out text the committed model is evaluated."""

    every_rounds: Positive = 1
    """Rounds from one evaluation to the next."""
    tokens: Positive = 65_536
    """Held-out tokens per evaluation."""


class TrainingSpec(ApiModel):
    """How long and how each peer trains."""

    max_tokens: Positive
    """The job is complete after these; all peers together."""
    batch_tokens: Positive
    """Per peer and optimizer step; a multiple of data.sequenceTokens."""
    micro_batch_tokens: Positive | None = None
    """Tokens in memory at once. Absent: batchTokens."""
    optimizer: OptimizerSpec
    """AdamW."""
    schedule: ScheduleSpec = ScheduleSpec()
    """Of the learning rate."""
    losses: LossSpec = LossSpec()
    """Coefficients of the auxiliary losses."""
    precision: Precision = "BF16"
    """BF16 is autocast on GPUs; a CPU computes in FP32 whatever this says."""
    seed: Count = 0
    """Of the first weights and of the order of the data. Immutable."""
    evaluation: EvaluationSpec = EvaluationSpec()
    """On held-out documents."""

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
    """Shared parameters are averaged, each expert is its owner's. Immutable."""
    weights: Literal["Uniform", "Tokens"] | None = None
    """Of a peer's shared delta. Absent: Uniform, or Tokens when sync.everySeconds is set."""
