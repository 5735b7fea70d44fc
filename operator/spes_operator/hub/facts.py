"""What the conditions and the status of a SpesJob are derived from. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from spes_operator.hub.lifetime import Activity
from spes_operator.hub.membership import Losses
from spes_operator.hub.peers import Peer
from spes_operator.hub.view import HubView


class Why(NamedTuple):
    """Reason and sentence."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What one pass knows of a job."""

    seen: HubView
    peers: tuple[Peer, ...]
    chosen: tuple[Peer, ...]
    lost: Losses
    activity: Activity
    """With the time up to now."""

    @property
    def ready(self) -> int:
        """Peers that take part now; before the first placement, those that could."""
        if self.seen.ownership is None:
            return sum(peer.caught_up for peer in self.chosen)
        return sum(peer.placed and peer.caught_up for peer in self.peers)

    @property
    def complete(self) -> bool:
        """MaxTokens are trained."""
        return self.seen.complete

    @property
    def overdue(self) -> bool:
        """Its time is over before it is complete."""
        return self.activity.exceeds(self.seen.job.spec) and not self.complete

    @property
    def ready_sentence(self) -> str:
        """How many peers are ready, of how many that there must be."""
        return f"{self.ready} of at least {self.seen.job.spec.members.min} peers are ready"
