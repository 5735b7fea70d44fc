"""What the server knows of each peer's life: heard from, caught up, left. Pure.

Time is the server's monotonic clock in seconds, always an argument; peers' clocks are never
compared. Called by the round state machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the job's settings say about rounds; seconds and tokens."""

    max_tokens: int
    min_members: int
    quorum: float
    timeout: float
    unreachable_after: float

    def needed(self, num_expected: int) -> int:
        """Pushes that let a round close at its deadline.

        Computed with the decimal that the user wrote: 0.07 of 100 are 7, though the float product
        is a little more.
        """
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
        """Whether the next round can count on it.

        It may hold the version before the last: it pulls the last as its first act, so neither a
        slow puller nor a peer that carries progress is left out.
        """
        return (
            self.live(now, rules)
            and self.caught_up
            and not self.draining
            and not self.final
            and version - 1 <= self.version <= version
        )
