"""RunView: everything the screen shows at one moment. Filled by the runner, read by the displays.

Plain data, no I/O. Text in it may come from members and is printed as it is, never as markup.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """One held-out evaluation: nats per token of a committed version."""

    version: int
    tokens: int
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLine:
    """Something that happened, as one sentence for people."""

    time: datetime
    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerView:
    """One peer. `steps_per_round` is H, or None when seconds alone end a round."""

    peer: str
    state: str
    """In plain words: "training", "pushed", "catching up", "absent", "lost", "done"."""
    experts: tuple[int, ...] = ()
    tokens_per_second: float | None = None
    loss: float | None = None
    step: int = 0
    steps_per_round: int | None = None
    pushed: bool = False
    bytes_up: int = 0
    bytes_down: int = 0
    waited: timedelta = timedelta()
    problem: str = ""
    """The last thing that went wrong with it; empty: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One moment of a job."""

    job: str
    phase: str
    """In plain words: "starting the sync server", "training", "round held", "finished"."""
    num_experts: int
    max_tokens: int
    elapsed: timedelta
    peers: tuple[PeerView, ...] = ()
    """In the order of the members file, absent ones too: letters and colours follow this order."""
    round: int = 0
    """The round that is open or comes next, at the end the last; 0 before there are weights."""
    version: int = -1
    """The last committed version; -1: none yet. Round n commits version n."""
    tokens: int = 0
    tokens_per_second: float | None = None
    """Of all peers together."""
    held_out: tuple[HeldOut, ...] = ()
    """Oldest first."""
    epoch: int = 0
    deadline_in: timedelta | None = None
    """Time left of the open round; None: no round is open."""
    events: tuple[EventLine, ...] = ()
    """Oldest first; only ever grows at the end, though old ones may be dropped."""
    problem: str = ""
    """Why the round is held or the job waits; empty: all is well."""
    hint: str = ""
    """What to do about the problem."""
