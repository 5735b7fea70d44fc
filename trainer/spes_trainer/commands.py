"""What rank 0 of a peer has all ranks do, one after the other.

A command carries plain values, so it can be sent as a line of JSON. Tensors do not travel with it:
rank 0 brings them to `run`, and the share hands out what each rank needs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from torch import Tensor

from spes_trainer.ranks import ALONE, Ranks
from spes_trainer.share import Share
from spes_trainer.step import StepOutcome

Result_co = TypeVar("Result_co", covariant=True)
Tensors = Mapping[str, Tensor]
NOTHING: Tensors = MappingProxyType({})


class Command(Protocol[Result_co]):
    """One thing that all ranks do."""

    def run(self, share: Share, given: Tensors) -> Result_co:
        """Do it with this rank's share. `given` is empty but on rank 0."""


class Others(Protocol):
    """The ranks beside rank 0, from its side."""

    @property
    def ranks(self) -> Ranks:
        """All of them, rank 0 included."""

    def tell(self, command: Command[object]) -> None:
        """Have them run a command; they are at it when this returns, or soon."""


class Nobody:
    """A peer of one process."""

    ranks: Ranks = ALONE

    def tell(self, command: Command[object]) -> None:
        """There is nobody to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Collect a live weight."""

    name: str

    def run(self, share: Share, given: Tensors) -> Tensor:  # noqa: ARG002
        """Whole on rank 0."""
        return share.read(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Replace a live weight by `value`."""

    name: str

    def run(self, share: Share, given: Tensors) -> None:
        """Copy rows."""
        share.write(self.name, given.get("value"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    """Own exactly these experts from now on."""

    experts: Sequence[int]
    ramp: bool
    steps: Mapping[str, float] = field(default_factory=dict)
    """Of each tensor whose moments are given."""

    def run(self, share: Share, given: Tensors) -> None:
        """Take the moments, then own."""
        moments = share.take_moments(self.steps, given)
        share.train(self.experts, ramp=self.ramp, moments=moments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One optimizer step on `sequences`."""

    shape: tuple[int, int]
    rate: float
    ramp: bool
    """Whether what was never trained here climbs to the rate."""

    def run(self, share: Share, given: Tensors) -> StepOutcome | None:
        """Of the whole step, on every rank."""
        sequences = share.sequences(given.get("sequences"), self.shape)
        return share.step(sequences, rate=self.rate, ramp=self.ramp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """Pull towards the live weights from now on."""

    def run(self, share: Share, given: Tensors) -> None:  # noqa: ARG002
        """Copy the rows."""
        share.anchor()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate:
    """Held-out loss on `sequences`."""

    shape: tuple[int, int]

    def run(self, share: Share, given: Tensors) -> float:
        """Of all sequences, on every rank."""
        return share.stepper.evaluate(share.sequences(given.get("sequences"), self.shape))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadMoments:
    """Collect the moments of an owned expert."""

    expert: int

    def run(self, share: Share, given: Tensors) -> dict[str, Tensor]:  # noqa: ARG002
        """Whole on rank 0, in copies; nothing if it was never trained here."""
        return {name: tensor.clone() for name, tensor in share.moments(self.expert)}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFirstWeights:
    """Start from the weights that the job names, if any."""

    def run(self, share: Share, given: Tensors) -> None:  # noqa: ARG002
        """Read the rows."""
        share.load_first_weights()


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """Write a checkpoint."""

    name: str
    state: Mapping[str, object]

    def run(self, share: Share, given: Tensors) -> None:  # noqa: ARG002
        """Write the rows."""
        share.save(self.name, self.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Go on from a verified checkpoint."""

    name: str
    owned: Sequence[int]

    def run(self, share: Share, given: Tensors) -> None:  # noqa: ARG002
        """Read the rows."""
        share.resume(self.name, self.owned)


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """Return the moments to those of a verified checkpoint, or to fresh ones."""

    name: str | None

    def run(self, share: Share, given: Tensors) -> None:  # noqa: ARG002
        """Read the rows."""
        share.discard(self.name)


_KINDS: Mapping[str, Any] = {
    kind.__name__: kind
    for kind in (
        Read,
        Write,
        Train,
        Step,
        Anchor,
        Evaluate,
        ReadMoments,
        LoadFirstWeights,
        Save,
        Resume,
        Discard,
    )
}


def encode(command: Any) -> str:
    """One line of JSON."""
    return json.dumps([type(command).__name__, asdict(command)]) + "\n"


def decode(line: str) -> Command[object]:
    """What `encode` has written."""
    kind, values = json.loads(line)
    command: Command[object] = _KINDS[kind](**values)
    return command
