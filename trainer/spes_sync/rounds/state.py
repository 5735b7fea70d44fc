"""The state of the rounds: phase, versions, plans, peers, the open round. Immutable and pure.

Round n starts from version n-1 and commits version n; version 0 is the seed.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from spes_proto.v1 import control_pb2, sync_pb2

from spes_sync.plan import PeerId, Plan
from spes_sync.rounds.events import Push
from spes_sync.rounds.membership import Peer, Rules


class Phase(enum.Enum):
    """Where the job is; the values are the wire's."""

    SEEDING = control_pb2.SEEDING
    WAITING = control_pb2.WAITING
    OPEN = control_pb2.OPEN
    HELD = control_pb2.HELD
    CLOSING = control_pb2.CLOSING
    COMPLETE = control_pb2.COMPLETE


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round: who must push, who has. A peer that dies mid-push counts as not pushed."""

    number: int
    plan: Plan
    """Fixed at opening (and re-opening): it judges every push, expert by expert."""
    expected: frozenset[PeerId]
    deadline: float
    pushes: Mapping[PeerId, tuple[Push, ...]] = field(default_factory=dict)
    done: frozenset[PeerId] = frozenset()
    """Nothing more is awaited of them; they have pushed, some perhaps only in part."""
    silenced: frozenset[PeerId] = frozenset()
    """Left `expected` by silence alone: the same process is expected again when heard."""

    @property
    def base(self) -> int:
        """The version that every push is a delta against."""
        return self.number - 1

    @property
    def awaited(self) -> frozenset[PeerId]:
        """Expected peers whose push is not in."""
        return self.expected - self.done

    @property
    def sharers(self) -> frozenset[PeerId]:
        """Peers whose shared parameters are in."""
        return frozenset(
            peer for peer, pushes in self.pushes.items() if any(push.has_shared for push in pushes)
        )

    def has_pushed(self, peer: PeerId) -> bool:
        """Whether anything of the peer's is verified."""
        return bool(self.pushes.get(peer))

    def has(self, peer: PeerId, part: sync_pb2.Part) -> bool:
        """Whether this part of the peer's contribution is verified, by itself or in the whole."""
        return any(push.part in (part, sync_pb2.ALL) for push in self.pushes.get(peer, ()))

    def counted(self, peer: PeerId, push: Push) -> tuple[int, ...]:
        """The experts of a verified push that count under this round's plan."""
        return tuple(e for e in push.experts if self.plan.counts(e, peer=peer, epoch=push.epoch))


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that decides what happens next."""

    rules: Rules
    phase: Phase = Phase.SEEDING
    version: int = -1
    global_tokens: int = 0
    active: Plan = field(default_factory=Plan)
    """The plan of the last opened round; what peers go by."""
    newest: Plan = field(default_factory=Plan)
    """The hub's last word; active from the next opening on."""
    seed_peer: PeerId | None = None
    peers: Mapping[PeerId, Peer] = field(default_factory=dict)
    round: Round | None = None
    """Set in OPEN, HELD and CLOSING."""
    problem: str = ""
    retry_at: float | None = None
    """HELD because a version could not be written: when to try again."""
    stopping: str = ""
    """Why the job ends after its last commit; empty: it does not."""
    stop_sent: bool = False
    evaluator: PeerId | None = None
    """COMPLETE: who is asked for the held-out loss of the final version."""
    evaluate_until: float | None = None
    """COMPLETE: that loss is waited for, and no longer than until then."""

    @property
    def accepts_pushes(self) -> bool:
        """Whether deltas are taken in."""
        return self.phase in (Phase.OPEN, Phase.HELD)

    @property
    def round_number(self) -> int:
        """The open round, else the next one."""
        return self.round.number if self.round else self.version + 1

    def plan_for(self, peer: PeerId) -> Plan:
        """What a peer should go by: the active plan, but a removal at once."""
        removed = peer in self.active.peers and peer not in self.newest.peers
        return self.newest if removed else self.active

    def ready(self, now: float) -> frozenset[PeerId]:
        """Placed peers that the next round can count on."""
        return frozenset(
            peer
            for peer in self.newest.peers
            if (known := self.peers.get(peer)) and known.ready(now, self.rules, self.version)
        )

    def needed(self) -> int:
        """Pushes that let the open round close at its deadline; 0 without one."""
        return self.rules.needed(len(self.round.expected)) if self.round else 0
