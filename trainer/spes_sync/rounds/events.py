"""What happens to rounds (events) and what must then be done (effects). Data only.

The state machine of `rounds` maps a state and an event to a state and effects; the server carries
the effects out: first the durable ones, then the messages.
"""

from __future__ import annotations

from dataclasses import dataclass

from spes_proto.v1 import sync_pb2

from spes_sync.plan import PeerId, Plan
from spes_sync.rounds.membership import Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """A verified part of a peer's contribution to a round."""

    part: sync_pb2.Part
    sha256: str
    epoch: int
    steps: int
    tokens: int
    samples: int = 0
    """Of its data; 0: it did not say."""
    staleness: int = 0
    """Versions that its shared part has missed."""
    loss: float = 0.0
    experts: tuple[int, ...] = ()
    """Those it brings under `epoch`; the round's plan says at the commit which count."""
    final: bool = False
    routed_tokens: tuple[int, ...] = ()
    """Tokens that reached each expert, by index; empty if the peer did not count."""

    @property
    def has_shared(self) -> bool:
        """Whether shared parameters are in it: then nothing more is expected of the peer."""
        return self.part in (sync_pb2.ALL, sync_pb2.SHARED)


# Events.


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanApplied:
    """The hub's newest plan; never an older epoch than the state's."""

    plan: Plan
    rules: Rules
    seed_peer: PeerId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A new process of this peer."""

    peer: PeerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A sign of life over an open session; `version` if it said what it holds."""

    peer: PeerId
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnected:
    """The session's stream ended without a word."""

    peer: PeerId


@dataclass(frozen=True, slots=True, kw_only=True)
class CaughtUp:
    """The peer holds this version, pulled since its Join."""

    peer: PeerId
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The peer said goodbye."""

    peer: PeerId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A push passed every gate and lies in its spool."""

    peer: PeerId
    push: Push


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A push did not; `again` if the peer sends it once more."""

    peer: PeerId
    reason: str
    again: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeded:
    """Version 0 is durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The closing round's version is durable."""

    global_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFailed:
    """It could not be written; `problem` names path and bytes."""

    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The job is complete and its model exported: nothing else keeps its peers."""

    evaluate: bool
    """Whether the final version's held-out loss is wanted first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """The peer has measured a version's held-out loss."""

    peer: PeerId
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainAsked:
    """The hub wants these peers (None: all) to hand in what they have and leave."""

    peers: frozenset[PeerId] | None
    grace: float
    stop: str = ""
    """Not empty: the job ends after its last commit, and this is why."""


Event = (
    PlanApplied
    | Joined
    | Heard
    | Disconnected
    | CaughtUp
    | Left
    | Verified
    | Refused
    | Tick
    | Seeded
    | Committed
    | CommitFailed
    | Exported
    | Evaluated
    | DrainAsked
)


# Effects.


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A round has opened (or re-opened): lease data, make it durable, tell the expected peers."""

    reopened: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A peer left the open round's expected set."""

    peer: PeerId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasesReturned:
    """What the peer has not pushed goes back."""

    peer: PeerId


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitWanted:
    """The round closed: aggregate its pushes, make the version durable, report back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WasHeld:
    """The round cannot close; `problem` says what is missing."""

    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """Nobody is left in the round and nothing was pushed: no version is made of it."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChanged:
    """Tell these peers (None: all) the plan that is theirs now."""

    peers: frozenset[PeerId] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedNeeded:
    """Ask this peer for version 0."""

    peer: PeerId


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSent:
    """Ask these peers (None: all) for their final push."""

    peers: frozenset[PeerId] | None
    grace: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StopSent:
    """These peers (None: all) may end."""

    peers: frozenset[PeerId] | None
    reason: str
    evaluate_seconds: float = 0.0
    """Above 0: only when they have evaluated the last version, or this much later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The job has its tokens: export the model, then stop everyone."""


Effect = (
    Opened
    | Dropped
    | LeasesReturned
    | CommitWanted
    | WasHeld
    | GivenUp
    | PlanChanged
    | SeedNeeded
    | DrainSent
    | StopSent
    | Completed
)
