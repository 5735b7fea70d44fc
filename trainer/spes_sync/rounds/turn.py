"""One transition in the making: the state so far and the effects so far. Private to `rounds`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from spes_sync.plan import PeerId
from spes_sync.rounds import events as ev
from spes_sync.rounds.membership import Peer
from spes_sync.rounds.state import Round, State


class Turn:
    """One call of `advance`: the state so far and the effects so far."""

    def __init__(self, state: State, now: float) -> None:
        """Begin with `state` at time `now`."""
        self.state = state
        self.now = now
        self.effects: list[ev.Effect] = []

    def set(self, **changes: Any) -> None:
        """Replace fields of the state."""
        self.state = replace(self.state, **changes)

    def set_round(self, **changes: Any) -> None:
        """Replace fields of its round."""
        self.set(round=replace(self.round, **changes))

    def set_peer(self, peer: PeerId, **changes: Any) -> None:
        """Replace fields of a peer, known or new."""
        known = self.state.peers.get(peer) or Peer(heard_at=self.now)
        self.set(peers={**self.state.peers, peer: replace(known, **changes)})

    @property
    def round(self) -> Round:
        """The round; there is one in OPEN, HELD and CLOSING."""
        assert self.state.round is not None
        return self.state.round

    def drop(self, peer: PeerId, reason: str) -> None:
        """Await nothing more of a peer; what it has pushed still counts."""
        if not self.state.accepts_pushes or peer not in self.round.awaited:
            return
        if self.round.pushes.get(peer):
            self.set_round(done=self.round.done | {peer})
        else:
            self.set_round(expected=self.round.expected - {peer})
        self.effects.append(ev.Dropped(peer=peer, reason=reason))
