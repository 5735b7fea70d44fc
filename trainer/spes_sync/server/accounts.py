"""What each peer has done, in numbers: for SyncState, metrics and journal. Mutable, in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from spes_proto.v1 import sync_pb2

from spes_sync.dropped import Coding
from spes_sync.plan import PeerId
from spes_sync.quantize import Codec


@dataclass(slots=True, kw_only=True)
class Account:
    """One peer's totals since the server started, and its last heartbeat."""

    heartbeat: sync_pb2.Heartbeat = field(default_factory=sync_pb2.Heartbeat)
    session: str = ""
    """Which process spoke last."""
    bytes_up: int = 0
    bytes_down: int = 0
    wait_seconds: float = 0.0
    refusals: int = 0
    coding: Coding = field(default_factory=Coding)
    """Of its last push."""
    codec: Codec | None = None
    """Of its last push; None: it has not pushed yet."""
    pushed_at: float | None = None
    """When its push to the open round was verified: from then on it waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTraffic:
    """What one peer cost in one round."""

    bytes_up: int
    bytes_down: int
    wait_seconds: float


class Accounts:
    """Every peer's account; a peer that is forgotten takes its own along."""

    def __init__(self) -> None:
        """Nobody yet."""
        self._accounts: dict[PeerId, Account] = {}
        self._settled: dict[PeerId, tuple[int, int]] = {}
        self.refusals: dict[str, int] = {}
        """By reason, all peers together."""

    def of(self, peer: PeerId) -> Account:
        """A peer's account, new if need be."""
        return self._accounts.setdefault(peer, Account())

    def seen(self, peer: PeerId) -> Account:
        """A peer's account to look at, also from another thread: nothing is made of it."""
        return self._accounts.get(peer) or Account()

    def refused(self, peer: PeerId, reason: str) -> None:
        """Count a refusal."""
        self.of(peer).refusals += 1
        self.refusals[reason] = self.refusals.get(reason, 0) + 1

    def settle(self, peer: PeerId, now: float) -> RoundTraffic:
        """Close the peer's books on a round that is committed at `now`."""
        account = self.of(peer)
        waited = 0.0 if account.pushed_at is None else max(0.0, now - account.pushed_at)
        up, down = self._settled.get(peer, (0, 0))
        self._settled[peer] = (account.bytes_up, account.bytes_down)
        account.wait_seconds += waited
        account.pushed_at = None
        return RoundTraffic(
            bytes_up=account.bytes_up - up,
            bytes_down=account.bytes_down - down,
            wait_seconds=waited,
        )

    def keep_only(self, peers: frozenset[PeerId]) -> None:
        """Forget everyone else."""
        for gone in self._accounts.keys() - peers:
            del self._accounts[gone]
            self._settled.pop(gone, None)
