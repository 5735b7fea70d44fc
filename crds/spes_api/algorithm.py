"""How the peers' work becomes one model: the algorithm of a SpesJob. Part of `SpesJobSpec`.

SPES (arXiv 2602.11543) and what it is compared with. FedAvg, FedNova, DiLoCo and Centralised are
*replicated*: every peer trains every expert, so experts are averaged like all other parameters.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from spes_api.schema_base import ApiModel, Cel, Positive, cel_rules


class MergeSpec(ApiModel):
    """The expert-merging warm-up of SPES; defaults are the paper's at 50 steps a round."""

    alpha: Annotated[float, Field(gt=0, le=1)] = 0.1
    """How far an expert moves towards the similar ones at first; falls linearly to 0."""
    donors: Annotated[int, Field(ge=1, le=4096)] = 4
    """How many similar experts draw one; at most all others of its layer."""
    every_rounds: Positive = 6
    """Rounds from one merge to the next."""
    warmup_rounds: Positive = 250
    """Round from which on experts are not merged any more."""


class OuterSpec(ApiModel):
    """The outer optimizer of DiLoCo, SGD with Nesterov momentum; defaults are its paper's."""

    learning_rate: Annotated[float, Field(gt=0, le=10)] = 0.7
    """Of the mean of the peers' changes; with momentum 0, 1 is FedAvg."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Share of the last round's direction that goes on."""


class AlgorithmSpec(ApiModel):
    """How what peers push becomes the next version."""

    model_config = cel_rules(
        Cel(
            "!has(self.merge) || !has(self.name) || self.name == 'SPES'",
            "merge needs the algorithm SPES",
        ),
        Cel(
            "!has(self.outer) || has(self.name) && self.name == 'DiLoCo'",
            "outer needs the algorithm DiLoCo",
        ),
    )

    name: Literal["SPES", "FedAvg", "FedNova", "DiLoCo", "Centralised"] = "SPES"
    """SPES: shared parameters are averaged, each expert is its owner's. FedAvg: every peer trains
    everything, all of it is averaged. FedNova: as FedAvg, but each peer's change is divided by its
    number of steps, so that one that makes more of them does not pull the model to its own optimum.
    DiLoCo: as FedAvg, and the server makes a step with momentum. Centralised: one peer trains
    everything. Immutable."""
    weights: Literal["Uniform", "Tokens", "Samples"] | None = None
    """Of a peer's share in an average: each alike, by the tokens it trained in the round, or by the
    sequences of its own data (with data.split Local they differ), whose number is its own word.
    Absent: Uniform, or Tokens when sync.everySeconds is set and the algorithm is not FedNova."""
    merge: MergeSpec | None = None
    """Of experts, with SPES. Absent: none."""
    outer: OuterSpec | None = None
    """The server's step, with DiLoCo. Absent: its defaults."""

    @model_validator(mode="after")
    def _parts_of_this_algorithm(self) -> Self:
        for part, given, owner in (
            ("merge", self.merge, "SPES"),
            ("outer", self.outer, "DiLoCo"),
        ):
            if given is not None and self.name != owner:
                raise ValueError(f"{part} needs the algorithm {owner} (got {self.name})")
        return self

    @property
    def replicated(self) -> bool:
        """Whether every peer trains every expert."""
        return self.name != "SPES"

    @property
    def outer_step(self) -> OuterSpec | None:
        """The server's own step, the default resolved; None: the average is the next version."""
        return (self.outer or OuterSpec()) if self.name == "DiLoCo" else None
