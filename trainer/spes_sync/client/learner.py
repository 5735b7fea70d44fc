"""What the peer protocol needs from a trainer: weights, steps, optimizer moments, checkpoints.

`spes_sync.client` calls a Learner from one thread, never two methods at once. Weights travel one
tensor at a time, so a learner whose tensors are sharded over ranks gathers one, not the model.
The driver decides when and on what to train; a learner never looks at the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from spes_sync.codec import Array
from spes_sync.manifest import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTerms:
    """What a peer is told when it joins; everything a learner is built from."""

    job_uid: str
    incarnation: int
    peer: str
    settings_json: str  # canonical JSON of SpesJobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSummary:
    """The training data as this peer sees it."""

    fingerprint: str  # hash of what must be equal on all peers with split: Disjoint
    num_sequences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SavePoint:
    """Where the run stands at a checkpoint; saved with the weights and returned by `restore`.

    Only taken at "pulled v": the live weights are the served model of `version`, nothing pending.
    """

    incarnation: int
    version: int
    epoch: int  # of the active plan
    owned: Mapping[int, int]  # expert -> epoch in which it was granted to this peer
    steps: int  # optimizer steps of this peer since the job began
    tokens: int  # of this peer
    global_tokens: int  # of all peers, as committed: the schedule position


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipChange:
    """Which experts this peer trains from its next step on."""

    owned: tuple[int, ...]
    gained: tuple[int, ...]
    lost: tuple[int, ...]  # freeze them, delete their optimizer state
    # Optimizer moments of gained experts that their last owner handed over, named as in
    # `Manifest.moments_of`. A gained expert without them starts at zero, with the ramp.
    moments: Mapping[int, Mapping[str, Array]]
    # True at version 0: nobody has trained the gained experts yet, so they need no ramp.
    untrained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPosition:
    """One optimizer step: on which sequences, and where in the schedule."""

    round: int
    # Positions in the job's endless order: pass = n // num_sequences, index = n % num_sequences.
    sequences: tuple[int, ...]
    global_tokens: int  # schedule position, all peers together


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What one optimizer step did."""

    loss: float
    tokens: int
    routed_tokens: Sequence[int]  # per expert of the model, summed over layers
    peak_bytes: int = 0  # device memory at its highest; 0: not measured


class Weights(Protocol):
    """The live weights, named and shaped by the manifest."""

    @property
    def manifest(self) -> Manifest:
        """All tensors of the model."""

    def read(self, names: Sequence[str]) -> Iterator[tuple[str, Array]]:
        """Yield float32 values in the order of `names`.

        An array need only stay valid until the next one is asked for; it is not modified.
        """

    def write(self, tensors: Iterable[tuple[str, Array]]) -> None:
        """Copy values in, optimizer state untouched.

        `tensors` may be computed from a `read` of the same names that is still in progress.
        """


class Training(Protocol):
    """Optimizer steps and what belongs to them."""

    @property
    def data(self) -> DataSummary:
        """The training data."""

    def own(self, change: OwnershipChange) -> None:
        """Freeze lost experts, train gained ones. Weights stay as they are."""

    def step(self, position: StepPosition) -> StepResult | None:
        """Make one optimizer step; None: told to stop, ended between micro-batches, unchanged.

        Raises:
            DivergedError: the loss or the gradient norm is not finite; the weights are unchanged.
        """

    def anchor(self) -> None:
        """The live weights are the base of the progress from now on: pull towards them.

        Only asked for with `training.optimizer.proximal`.
        """

    def evaluate(self, num_tokens: int) -> float:
        """Held-out loss of the live weights over about `num_tokens`, nats per token."""

    def moments(self, expert: int) -> Mapping[str, Array]:
        """Optimizer moments of an owned expert, named as in `Manifest.moments_of`; {} if none."""


class Checkpoints(Protocol):
    """Exact resume."""

    def restore(self) -> SavePoint | None:
        """Load the last complete checkpoint, weights, optimizer and all; None if there is none.

        The learner then trains the experts of `SavePoint.owned`.
        """

    def save(self, point: SavePoint) -> None:
        """Write a checkpoint atomically."""

    def judge(self, version: int, loss: float) -> None:
        """The held-out loss of a version's model: its checkpoint, if any, may be worth keeping."""

    def discard(self) -> None:
        """Return optimizer moments to those of the last checkpoint (fresh ones if there is none).

        Called when the progress since then was refused; the weights are written afterwards.
        """


class Learner(Weights, Training, Checkpoints, Protocol):
    """All of it: what `run_peer` drives."""
