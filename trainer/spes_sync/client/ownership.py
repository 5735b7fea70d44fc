"""Which experts are a peer's: what the plan gives it, and what its learner trains. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spes_proto.v1 import sync_pb2

from spes_sync.client.actions import Adopt


class Ownership:
    """The plan as one peer sees it, and the experts that it has taken over."""

    def __init__(self, peer: str, owned: Mapping[int, int]) -> None:
        """Start with the experts of a checkpoint and the epochs in which they were granted."""
        self._peer = peer
        self.plan = sync_pb2.Plan()
        self.owned = dict(owned)

    @property
    def placed(self) -> bool:
        """Whether the plan names this peer."""
        return self._peer in self.plan.peers

    def change(self, *, gives: bool) -> Adopt | None:
        """What to take over and hand back; with `gives` False experts are only taken away."""
        planned, kept = self._planned(), self._kept()
        owned = planned if gives else kept
        if owned == self.owned:
            return None
        return Adopt(
            owned=owned,
            gained=tuple(sorted(set(owned) - set(kept))),
            lost=tuple(sorted(set(self.owned) - set(kept))),
        )

    def handing_back(self) -> Adopt | None:
        """All of it, once the plan does not name this peer any more."""
        is_known = self.plan.epoch > 0  # before the first event of a Session it is not
        if not is_known or self.placed or not self.owned:
            return None
        return Adopt(owned={}, gained=(), lost=tuple(sorted(self.owned)))

    def carried(self, dropped: Iterable[int]) -> frozenset[int]:
        """Experts whose progress still counts: granted no later than it was made, not dropped."""
        return frozenset(self._kept()) - frozenset(dropped)

    def _kept(self) -> dict[int, int]:
        planned = self._planned()
        return {e: granted for e, granted in self.owned.items() if planned.get(e) == granted}

    def _planned(self) -> dict[int, int]:
        """What the plan gives this peer: expert -> epoch in which it was granted."""
        if not self.placed:
            return {}
        return {o.expert: o.granted_epoch for o in self.plan.owners if o.peer == self._peer}
