"""With whom a SpesJob trains, and what happens when they come, go or are late.

Parts of `SpesJobSpec`.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from spes_api.quantity import QUANTITY_PATTERN
from spes_api.schema_base import (
    ApiModel,
    Cel,
    Count,
    Labels,
    Positive,
    PositiveSeconds,
    Resources,
    Seconds,
    ShortText,
    Word,
    cel_rules,
)


class MembersSpec(ApiModel):
    """Which members take part, and how many."""

    model_config = cel_rules(
        Cel("!has(self.min) || !has(self.max) || self.min <= self.max", "min must be at most max")
    )

    selector: Labels = Field(default_factory=dict)
    """Labels a member must carry; {} selects all."""
    min: Annotated[int, Field(ge=1, le=512)] = 1
    """No round opens with fewer ready peers."""
    max: Annotated[int, Field(ge=1, le=512)] = 64
    """No more peers are placed."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min must be at most max (got {self.min} and {self.max})")
        return self


class ExpertsSpec(ApiModel):
    """Limits on expert ownership."""

    max_per_peer: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Absent: memory decides. Says nothing where experts have no owners (FedAvg, DiLoCo)."""


CodecName = Literal["FP32", "BF16", "INT8", "UINT8", "INT16", "UINT8Paper", "INT16Paper"]

UplinkName = Literal[CodecName, "Auto"]


class CompressionSpec(ApiModel):
    """Codec of each direction. What a lossy one drops is kept and added to the next message.

    FP32, BF16: 4 and 2 bytes a value. INT8: one byte, in blocks of 4,096 values with a scale of
    their own. UINT8, INT16: one byte and two, counted from the least to the largest value of a
    whole push; UINT8Paper, INT16Paper: the same, but zeros come back as up to half a step.
    """

    uplink: UplinkName = "FP32"
    """From peers to the sync server. Auto: FP32, BF16 or UINT8, the most precise that each peer's
    link carries in a twentieth of a round's time, by the rate that was measured."""
    downlink: CodecName = "FP32"
    """From the sync server to peers; experts come as their owners sent them. UINT8 and INT16 count
    from the least to the largest of every 262,144 values."""
    entropy: Literal["None", "Huffman"] = "None"
    """Huffman: what is sent in either direction is coded once more where that makes it at least 5 %
    smaller, 1 MiB at a time. Saves 15 to 40 % of UINT8 and costs a core 10 to 15 s for 1 GB."""


class BufferSpec(ApiModel):
    """Of mode Buffered: FedBuff; with size 1 and a rate of 0.6 FedAsync."""

    size: Annotated[int, Field(ge=1, le=512)] | None = None
    """Pushes that make a version; at most all that are expected. Absent: half of them, rounded
    up."""
    rate: Annotated[float, Field(gt=0, le=10)] = 1.0
    """How far a version goes along the weighted average of its pushes."""
    max_staleness: Annotated[int, Field(ge=0, le=64)] = 4
    """Versions that a peer's work may miss. The next one waits for a peer that has missed so many,
    as long as timeoutSeconds; 0: every version waits for all."""
    discount: Literal["Polynomial", "Constant", "Hinge"] = "Polynomial"
    """Of shared work that has missed s versions: 1 / sqrt(1 + s); none; or none up to 4, then
    1 / (10 (s - 4) + 1)."""


class SyncSpec(ApiModel):
    """When peers synchronise and how long the server waits."""

    model_config = cel_rules(
        Cel(
            "has(self.everySteps) || has(self.everySeconds)",
            "must set at least one of everySteps, everySeconds",
        ),
        Cel(
            "!has(self.everySeconds) || !has(self.timeoutSeconds)"
            " || self.timeoutSeconds > self.everySeconds",
            "timeoutSeconds must be above everySeconds",
        ),
        Cel(
            "!has(self.buffer) || has(self.mode) && self.mode == 'Buffered'",
            "buffer needs the mode Buffered",
        ),
    )

    every_steps: Positive | None = None
    """H: optimizer steps per round."""
    every_seconds: PositiveSeconds | None = None
    """T: a round's training time. With everySteps too, whichever comes first; a peer does at least
    one step."""
    timeout_seconds: PositiveSeconds = 600
    """The round's hard limit at the server."""
    quorum: Annotated[float, Field(gt=0, le=1)] = 0.66
    """Share of the expected peers that lets a round close at its deadline."""
    mode: Literal["Rounds", "Buffered"] = "Rounds"
    """Rounds: a version waits for all expected peers, as long as timeoutSeconds. Buffered: the
    pushes that come first make it, and the others carry their work to the next; for peers of
    different speed. An upload that is not complete then begins anew. Experts are their owners' in
    both; needs the algorithm SPES or FedAvg."""
    buffer: BufferSpec | None = None
    """Of mode Buffered. Absent: its defaults."""
    compression: CompressionSpec = CompressionSpec()
    """Of what is sent."""

    @property
    def buffered(self) -> BufferSpec | None:
        """The buffer, the default resolved; None: rounds wait for all."""
        return (self.buffer or BufferSpec()) if self.mode == "Buffered" else None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        steps, seconds, timeout = self.every_steps, self.every_seconds, self.timeout_seconds
        if steps is None and seconds is None:
            raise ValueError("must set at least one of everySteps, everySeconds (got none)")
        if seconds is not None and timeout <= seconds:
            raise ValueError(
                f"timeoutSeconds must be above everySeconds (got {timeout} and {seconds})"
            )
        if self.buffer is not None and self.mode != "Buffered":
            raise ValueError(f"buffer needs the mode Buffered (got {self.mode})")
        return self


class ReassignmentSpec(ApiModel):
    """When experts move away from a peer that is gone."""

    model_config = cel_rules(
        Cel(
            "!has(self.reassignAfterSeconds) || !has(self.unreachableAfterSeconds)"
            " || self.reassignAfterSeconds > self.unreachableAfterSeconds",
            "reassignAfterSeconds must be above unreachableAfterSeconds",
        )
    )

    mode: Literal["Automatic", "Manual"] = "Automatic"
    """Manual: experts of a gone peer wait for a person."""
    unreachable_after_seconds: PositiveSeconds = 40
    """Silence after which a member gets no new experts and leaves the open round."""
    reassign_after_seconds: PositiveSeconds = 180
    """Silence after which its experts move."""
    max_moves_per_minute: Count = 0
    """Limits moves made for balance only; 0: no limit."""
    cooldown_after_hub_restart_seconds: Seconds = 120
    """No experts move this soon after the hub started: it may not have seen everyone yet."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        reassign, unreachable = self.reassign_after_seconds, self.unreachable_after_seconds
        if reassign <= unreachable:
            raise ValueError(
                "reassignAfterSeconds must be above unreachableAfterSeconds "
                f"(got {reassign} and {unreachable})"
            )
        return self


class TrainerSpec(ApiModel):
    """The pod that a peer runs in."""

    image: Annotated[str, StringConstraints(max_length=512)] = ""
    """Empty: the chart's own."""
    num_proc_per_node: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes of a pod, one per GPU."""
    resources: Resources = Field(default_factory=dict)
    """Kubernetes resource limits, for example {nvidia.com/gpu: "8"}."""
    activation_checkpointing: bool = False
    """Keep no activations inside blocks and compute them again going backwards: less memory, about
    a third more time."""
    grace_period_seconds: Annotated[int, Field(ge=1, le=86_400)] = 120
    """From SIGTERM to SIGKILL: time for a partial push."""
    activation_bytes: Count | None = None
    """Peak memory of activations and workspace. Absent: estimated, then measured."""
    node_selector: Labels = Field(default_factory=dict)
    """Of members' nodes; each member allows keys one by one, by default those of GPU models."""
    priority_class_name: Word = ""
    """In members' clusters; each must allow it. Empty: their default."""
    queue_name: ShortText = ""
    """Of Kueue in members' clusters; each must allow it. Empty: no queue."""


class StorageSpec(ApiModel):
    """The sync server's volume."""

    size: Annotated[str, StringConstraints(pattern=QUANTITY_PATTERN, max_length=32)] = "20Gi"
    """A Kubernetes quantity."""
    storage_class: Word = ""
    """Empty: the cluster's default."""


class CheckpointSpec(ApiModel):
    """What is kept on disk."""

    every_rounds: Positive = 1
    """Rounds from one kept version to the next."""
    keep_last: Annotated[int, Field(ge=1, le=1000)] = 3
    """Kept versions; the oldest goes."""
    keep_best: Annotated[int, Field(ge=0, le=100)] = 0
    """Besides, checkpoints of the lowest held-out loss, at the peer that evaluates; the paper keeps
    10. Each has the model and the moments of what is trained."""
    storage: StorageSpec = StorageSpec()
    """Of the sync server."""
    reclaim: Literal["Keep", "Delete"] = "Keep"
    """What happens to the volume when the job is deleted."""
