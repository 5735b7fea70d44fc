"""What `spes status` shows: jobs, members, who owns what. Plain data, no clock, no I/O.

Made by `cli/status_view.py` from the hub's objects; drawn by `status_screen`, and printed as JSON
by `cli/status_json.py`, whose keys are these fields' names. Text in it may come from members.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from spes_operator.display.view import EventLine


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A SpesJob in one line."""

    namespace: str
    name: str
    ready: str
    """ "True", "False" or "Unknown"."""
    reason: str
    """Of its condition Ready."""
    message: str
    degraded: str = ""
    """What is missing while the rest goes on; empty: nothing."""
    peers_ready: int = 0
    peers_wanted: int = 0
    experts_total: int = 0
    experts_owned: int = 0
    experts_parked: int = 0
    round: int = 0
    """The last committed round."""
    ownership_epoch: int = 0
    tokens: int = 0
    max_tokens: int = 0
    loss: float | None = None
    """Held-out, nats per token; None: not evaluated yet."""
    created: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRow:
    """A member in one line."""

    name: str
    state: str
    """In a word or two: "ready", "not accepted", "draining", "drained", "silent", "not ready"."""
    problem: str = ""
    """What keeps it from being used, and what to do; empty: nothing."""
    slots: int = 0
    gpus: int = 0
    jobs: int = 0
    version: str = ""
    last_heartbeat: datetime | None = None
    """By the hub's clock, to about a minute; None: it never reported."""
    created: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRow:
    """A peer of a job."""

    peer: str
    state: str
    """In plain words: "training", "ready", "starting", "waiting", "draining", "failed", "gone"."""
    experts: tuple[int, ...] = ()
    """That it trains."""
    contribution: float | None = None
    """Its part of all tokens trained so far; None: it is not known."""
    pod: str = ""
    """In the member's cluster."""
    restarts: int = 0
    problem: str = ""
    """The member's words; empty: nothing is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusView:
    """Every job and every member."""

    jobs: tuple[JobRow, ...] = ()
    members: tuple[MemberRow, ...] = ()
    notes: tuple[str, ...] = ()
    """What could not be read, and what would help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job."""

    job: JobRow
    replicated: bool = False
    """Every peer trains every expert."""
    peers: tuple[PeerRow, ...] = ()
    members: tuple[MemberRow, ...] = ()
    """Those that the job selects, or has peers in."""
    events: tuple[EventLine, ...] = ()
    """Of the job, oldest first."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A claim that outlives its job."""

    namespace: str
    name: str
    size: str
    """As a Kubernetes quantity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedJob:
    """What is left of a job that was deleted."""

    job: str
    uid: str
    peers: tuple[PeerRow, ...] = ()
    """Whose assignments still exist."""
    volumes: tuple[Volume, ...] = ()
    """Kept, because the job said so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedView:
    """Every deleted job of which something is left."""

    deleted: tuple[DeletedJob, ...] = field(default=())
    notes: tuple[str, ...] = ()
