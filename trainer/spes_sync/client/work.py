"""What a peer has trained since its base, and the push of it that is on its way.

Plain data, replaced rather than changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from spes_proto.v1 import sync_pb2

from spes_sync.client.actions import Push
from spes_sync.client.learner import StepResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Progress since the base. Carried progress goes on counting: it is the same work."""

    steps: int = 0
    tokens: int = 0
    sequences: int = 0  # used from the front of the lease
    loss_sum: float = 0.0
    routed_tokens: tuple[int, ...] = ()
    missed: int = 0  # commits that this work's shared part has missed

    @property
    def loss(self) -> float:
        """Mean training loss over its steps; 0 before the first."""
        return self.loss_sum / self.steps if self.steps else 0.0

    def plus(self, result: StepResult, num_sequences: int) -> Work:
        """This work and one more step."""
        before = self.routed_tokens or (0,) * len(result.routed_tokens)
        return Work(
            steps=self.steps + 1,
            tokens=self.tokens + result.tokens,
            sequences=self.sequences + num_sequences,
            loss_sum=self.loss_sum + result.loss,
            routed_tokens=tuple(a + b for a, b in zip(before, result.routed_tokens, strict=True)),
            missed=self.missed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """A push that was offered; only `Committed` says whether it counts.

    The answer may be lost although the server has the push, so what was offered is known before
    it is sent.
    """

    push: Push
    sha256: str
    answered_here: bool = False  # verified, as far as the present Session knows
    dropped_experts: frozenset[int] = frozenset()

    def answered(self, reply: sync_pb2.PushReply) -> InFlight:
        """The server has it, less the experts it names."""
        dropped = self.dropped_experts.union(reply.dropped_experts)
        return replace(self, answered_here=True, dropped_experts=dropped)

    def included_in(self, committed: sync_pb2.Committed | None, peer: str) -> bool:
        """Whether this very push is part of the version after its base."""
        return (
            committed is not None
            and committed.version == self.push.base_version + 1
            and any(i.peer == peer and i.sha256 == self.sha256 for i in committed.included)
        )


def leased_sequences(
    leases: Sequence[sync_pb2.Lease], *, used: int, wanted: int
) -> tuple[int, ...]:
    """The next `wanted` sequences of a lease whose first `used` are trained; fewer at its end."""
    positions: Iterator[int] = chain.from_iterable(
        range(lease.first, lease.first + lease.count) for lease in leases
    )
    return tuple(islice(positions, used, used + wanted))
