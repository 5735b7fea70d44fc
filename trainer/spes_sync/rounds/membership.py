"""What the server knows of each peer's life: heard from, caught up, left. Pure.

Time is the server's monotonic clock in seconds, always an argument; peers' clocks are never
compared. Called by the round state machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """When pushes make a version without waiting for all: FedBuff (arXiv 2106.06639)."""

    size: int | None
    """Pushes; None: half of those expected, rounded up."""
    max_staleness: int
    """Versions that a peer's work may miss: at so many, the next one waits for it."""

    def size_of(self, num_expected: int) -> int:
        """Pushes that fill it."""
        return min(self.size or -(-num_expected // 2), num_expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the job's settings say about rounds; seconds and tokens."""

    max_tokens: int
    min_members: int
    quorum: float
    timeout: float
    unreachable_after: float
    buffer: Buffer | None = None
    """None: a round waits for all that it expects."""

    @property
    def max_lag(self) -> int:
        """Versions that a peer may be behind the last one and still be counted on.

        It pulls them as its first act, so neither a slow puller nor a peer that carries progress is
        left out.
        """
        return 1 if self.buffer is None else self.buffer.max_staleness + 1

    def needed(self, num_expected: int) -> int:
        """Pushes that let a round close at its deadline.

        Computed with the decimal that the user wrote: 0.07 of 100 are 7, though the float product
        is a little more. What a buffer holds by then is worth a version.
        """
        if self.buffer is not None:
            return 1
        return max(1, math.ceil(Fraction(str(self.quorum)) * num_expected))


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One peer's process, as far as the server has seen it."""

    heard_at: float
    """When its last event came; else when the server began to wait for it."""
    connected: bool = False
    caught_up: bool = False
    """It said CaughtUp since its Join."""
    version: int = -1
    missed: int = 0
    """Versions in a row that it was expected in and brought nothing shared to."""
    draining: bool = False
    final: bool = False
    """Its last push is in; a Leaving follows."""
    left: str = ""
    """The reason of its Leaving."""
    stopped: bool = False

    def silent(self, now: float, rules: Rules) -> bool:
        """No event for unreachableAfterSeconds, whatever the stream looks like."""
        return now - self.heard_at >= rules.unreachable_after

    def live(self, now: float, rules: Rules) -> bool:
        """Its session is open and it spoke lately."""
        return self.connected and not self.left and not self.silent(now, rules)

    def decided(self, now: float, rules: Rules) -> bool:
        """Whether a round that is to open need not wait to learn if this peer is there."""
        return bool(self.left) or self.live(now, rules) or self.silent(now, rules)

    def ready(self, now: float, rules: Rules, version: int) -> bool:
        """Whether the next round can count on it."""
        return (
            self.live(now, rules)
            and self.caught_up
            and not self.draining
            and not self.final
            and version - rules.max_lag <= self.version <= version
        )
