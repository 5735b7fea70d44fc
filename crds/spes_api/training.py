"""What a SpesJob trains, and with what: model, optimizer, schedule. Parts of `SpesJobSpec`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from spes_api.data import DatasetPath
from spes_api.model import ModelConfig, PresetName, preset_config
from spes_api.schema_base import (
    ApiModel,
    Cel,
    Count,
    Fraction,
    Positive,
    cel_rules,
)

Precision = Literal["FP32", "BF16"]
NonNegative = Annotated[float, Field(ge=0)]


class UpcycleSpec(ApiModel):
    """First weights from a checkpoint; exactly one of preset and config says its shape."""

    model_config = cel_rules(
        Cel(
            "[has(self.preset), has(self.config)].filter(x, x).size() == 1",
            "must set exactly one of preset, config",
        )
    )

    dataset: DatasetPath
    """A Hugging Face folder of an OLMoE, Qwen3, Qwen3-MoE, Llama or Mixtral model, for example one
    that `spes-trainer upcycle` wrote. Every member that takes part must have it: one of them seeds.
    """
    preset: PresetName | None = None
    """The checkpoint's shape is that of a preset."""
    config: ModelConfig | None = None
    """The checkpoint's shape, as `spes-trainer upcycle` prints it."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        _require_one_of(self, "preset", "config")
        return self


class ModelSpec(ApiModel):
    """Which model is trained; exactly one of its fields. Immutable."""

    model_config = cel_rules(
        Cel(
            "[has(self.preset), has(self.config), has(self.upcycleFrom)].filter(x, x).size() == 1",
            "must set exactly one of preset, config, upcycleFrom",
        )
    )

    preset: PresetName | None = None
    """A named shape."""
    config: ModelConfig | None = None
    """A shape of your own."""
    upcycle_from: UpcycleSpec | None = None
    """A model that has weights already."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        _require_one_of(self, "preset", "config", "upcycle_from")
        return self

    def resolve(self) -> ModelConfig:
        """The shape, whichever way it was given."""
        given = self.upcycle_from or self
        if given.config is not None:
            return given.config
        assert given.preset is not None  # _exactly_one
        return preset_config(given.preset)


def _require_one_of(model: ApiModel, *fields: str) -> None:
    keys = {type(model).model_fields[field].alias: getattr(model, field) for field in fields}
    given = [str(key) for key, value in keys.items() if value is not None]
    if len(given) != 1:
        got = " and ".join(given) or "none"
        raise ValueError(f"must set exactly one of {', '.join(map(str, keys))} (got {got})")


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
    proximal: Annotated[float, Field(ge=0, le=1000)] = 0
    """FedProx's mu: adds mu times the distance from the weights that the round began with to the
    gradient, before clipping, so that peers with other data stray less; takes another copy of what
    is trained. 0: none."""


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

    model_config = cel_rules(
        Cel(
            "!has(self.schedule) || !has(self.schedule.warmupTokens)"
            " || self.schedule.warmupTokens <= self.maxTokens",
            "schedule.warmupTokens must be at most maxTokens",
        )
    )

    max_tokens: Positive
    """The job is complete after these; all peers together."""
    batch_tokens: Positive
    """Per peer and optimizer step; a multiple of data.sequenceTokens."""
    micro_batch_tokens: Positive | None = None
    """Tokens in memory at once, at most: a peer of one GPU that has no room for them goes on with
    half, and so on, and makes the step again. Absent: batchTokens."""
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

    @model_validator(mode="after")
    def _warm_up_ends(self) -> Self:
        if self.warmup_tokens > self.max_tokens:
            raise ValueError(
                "schedule.warmupTokens must be at most maxTokens "
                f"(got {self.warmup_tokens} and {self.max_tokens})"
            )
        return self

    @property
    def warmup_tokens(self) -> int:
        """Tokens of warm-up, the default resolved."""
        given = self.schedule.warmup_tokens
        return self.max_tokens // 50 if given is None else given

    @property
    def micro_tokens(self) -> int:
        """Tokens of a micro-batch, the default resolved."""
        return self.micro_batch_tokens or self.batch_tokens
