"""What the peer's machine can ask for: one action at a time, carried out by the driver.

Plain data. Each says all that is needed to carry it out but the tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from spes_proto.v1 import sync_pb2

from spes_sync.client.learner import StepPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """Push the initial weights: they become version 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebase:
    """Pull one frame towards `latest` and move weights and bases to its version."""

    have: int
    latest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUp:
    """Tell the server that this process holds its latest version."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """Write a checkpoint: the weights are the served model, nothing is pending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """Go back to the base: the progress since then is refused, or the peer is out of the plan."""

    reason: str
    moments_too: bool  # the optimizer moments return to those of the last checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt:
    """Train other experts from now on."""

    owned: dict[int, int] = field(hash=False)  # expert -> epoch in which it was granted
    gained: tuple[int, ...]
    lost: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate:
    """Measure the held-out loss of the served model."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Make one optimizer step."""

    position: StepPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """Push the progress since the base, for this round."""

    round: int
    base_version: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Hand over what fits the grace period, experts first, then say goodbye."""

    grace_seconds: float
    reason: str
    push: Push | None  # None: there is no progress that the open round would take
    whole: bool = False  # the push was offered before, experts and shared part together


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing to do until the server says something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """The peer is done."""

    reason: str  # of the server's Stop, or INTERRUPTED
    detail: str = ""


Action = (
    Seed | Rebase | CatchUp | Save | Discard | Adopt | Evaluate | Step | Push | Leave | Wait | Exit
)

# Exit.reason of a peer that was told to stop by its own machine (SIGTERM), not by the server.
INTERRUPTED = "INTERRUPTED"

# What the server says when a retransmission of the same bytes can help.
RETRANSMIT = frozenset({sync_pb2.TRUNCATED, sync_pb2.BAD_CHECKSUM, sync_pb2.DISK_FULL})
