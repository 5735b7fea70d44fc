"""What the hub and a job's sync server tell each other, as plain data. Pure.

Spoken by `sync_control`. Durations are the server's own; no moment of its clock is ever compared
with the hub's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum

from spes_operator.names import ExpertId, PeerId


class Phase(Enum):
    """Where the sync server's round machine stands."""

    SEEDING = "Seeding"
    WAITING = "Waiting"
    OPEN = "Open"
    HELD = "Held"
    CLOSING = "Closing"
    COMPLETE = "Complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerState:
    """A peer as the sync server sees it."""

    peer: PeerId
    connected: bool = False
    caught_up: bool = False
    left: str = ""
    """Reason of its Leaving; empty: it has not left."""
    silent_for: timedelta = timedelta()
    version: int = -1
    steps: int = 0
    tokens: int = 0
    tokens_per_second: float = 0.0
    """0: not known yet."""
    loss: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    waited: timedelta = timedelta()
    contribution: float = 0.0
    """Its part of all tokens trained so far."""
    refusals: int = 0
    peak_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncState:
    """The sync server's state. `incarnation` 0: its volume is empty."""

    job_uid: str = ""
    incarnation: int = 0
    active_epoch: int = 0
    pending_epoch: int = 0
    phase: Phase = Phase.SEEDING
    round: int = 0
    version: int = -1
    """The last committed version; -1: none."""
    needed: int = 0
    expected: tuple[PeerId, ...] = ()
    pushed: tuple[PeerId, ...] = ()
    left_of_round: timedelta = timedelta()
    global_tokens: int = 0
    held_out_loss: float | None = None
    problem: str = ""
    used_token_ids: frozenset[str] = frozenset()
    routed_tokens: Mapping[ExpertId, int] = field(default_factory=dict)
    """Since each expert's last change of owner; empty: not known."""
    peers: Mapping[PeerId, PeerState] = field(default_factory=dict)

    @property
    def epoch(self) -> int:
        """The newest ownership epoch the server knows."""
        return max(self.active_epoch, self.pending_epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenHash:
    """All that is known of a one-time token outside its Secret."""

    id: str
    peer: PeerId
    sha256: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPlan:
    """What the hub tells a sync server; applied as a whole, as often as it likes."""

    job_uid: str
    incarnation: int
    settings_json: str
    epoch: int
    owners: Mapping[ExpertId, PeerId]
    granted: Mapping[ExpertId, int]
    parked: tuple[ExpertId, ...]
    replicated: bool
    """Every peer trains everything; no owners, nothing parked."""
    peers: tuple[PeerId, ...]
    seed_peer: PeerId | None
    tokens: tuple[TokenHash, ...]
    """Of every join Secret there is; those the server knows change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainOrder:
    """Ask peers for their last push."""

    peers: tuple[PeerId, ...]
    """None given: all."""
    grace: timedelta
    reason: str
    stop: bool = False
    """End the job after its last commit."""
