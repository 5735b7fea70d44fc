"""The change of ownership, if one is due: who takes part, and who gets which expert. Pure.

Nothing changes without the sync server, while the job is halted or after it is complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from spes_operator.hub.candidates import peer_capacity, ready_to_place, selected, to_candidates
from spes_operator.hub.membership import Losses, released
from spes_operator.hub.ownership import MAX_MOVES, Cause, Move, Ownership
from spes_operator.hub.peers import Peer
from spes_operator.hub.sync_state import SyncState
from spes_operator.hub.view import HubView
from spes_operator.names import ExpertId, PeerId
from spes_operator.placement.decision import NOTHING_PLACED, Candidate, Placement
from spes_operator.placement.placement import place

# A peer without experts is looked at again once a placement has stood for this many rounds.
_SETTLED_ROUNDS = 3
# Over which the job's reassignment.maxMovesPerMinute counts.
_LIMIT_WINDOW = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Why ownership changes, and among whom."""

    cause: Cause
    reason: str
    peers: tuple[Peer, ...]
    why_gone: Mapping[PeerId, str]


class When(NamedTuple):
    """The moment of a change."""

    epoch: int
    time: datetime
    round: int


def next_ownership(
    seen: HubView, peers: Sequence[Peer], lost: Losses, *, now: datetime
) -> Ownership | None:
    """The ownership to be written, or None if it stays."""
    sync = seen.sync
    if sync is None or seen.halted or seen.complete:
        return None
    if seen.ownership is not None:
        repaired = _repair(seen, seen.ownership, sync, now)
        if repaired is not None:
            return repaired
        change = _change(seen, peers, lost, now)
    else:
        change = _start(seen, peers)
    return _carry_out(seen, change, sync, now) if change else None


def startable(seen: HubView, peers: Sequence[Peer]) -> bool:
    """Enough peers for the first placement are caught up and have room for every expert."""
    ready = ready_to_place(selected(seen.job, peers))
    places = sum(candidate.places for candidate in to_candidates(seen.job, ready))
    num_experts = seen.job.spec.model.resolve().num_experts
    return len(ready) >= seen.job.spec.members.min and places >= num_experts


def _start(seen: HubView, peers: Sequence[Peer]) -> Change | None:
    """The first placement; waits a while for those that are still starting, to spare moves."""
    if not startable(seen, peers):
        return None
    chosen = selected(seen.job, peers)
    ready = ready_to_place(chosen)
    patience = timedelta(seconds=seen.job.spec.reassignment.reassign_after_seconds)
    waited = seen.startable_for or timedelta()
    if any(peer.member_heard and peer not in ready for peer in chosen) and waited < patience:
        return None
    return Change(cause=Cause.START, reason="training starts", peers=ready, why_gone={})


def _change(seen: HubView, peers: Sequence[Peer], lost: Losses, now: datetime) -> Change | None:
    """The reason for which ownership must change now, the most pressing one as its cause."""
    assert seen.ownership is not None
    why_gone = {loss.peer: loss.reason for loss in lost.now}
    staying = [peer for peer in peers if peer.placed and peer.id not in why_gone]
    joining = () if _manual(seen) else ready_to_place(selected(seen.job, peers))
    if joining and _balance_limited(seen, now) and not _short_of_room(seen, staying):
        joining = ()
    members = tuple(sorted((*staying, *joining), key=lambda peer: peer.id))
    if not members:
        return None
    if why_gone:
        silent = any(loss.silent for loss in lost.now)
        reason = "; ".join(f"{peer}: {why_gone[peer]}" for peer in sorted(why_gone))
        cause = Cause.SILENCE if silent else Cause.DEPARTURE
    elif joining:
        names = ", ".join(peer.id for peer in joining)
        cause, reason = Cause.BALANCE, f"{names} joined"
    elif over := _over_full(seen, staying):
        cause, reason = Cause.BALANCE, f"{', '.join(over)} can hold fewer experts than before"
    elif starved := _starved(seen, staying, now):
        cause, reason = Cause.BALANCE, f"{', '.join(starved)} became fast enough for experts"
    elif _parking_due(seen, staying):
        cause, reason = Cause.PARKING, "experts without an owner take turns"
    else:
        return None
    return Change(cause=cause, reason=reason, peers=members, why_gone=why_gone)


def _manual(seen: HubView) -> bool:
    return seen.job.spec.reassignment.mode == "Manual" and not released(seen)


def _balance_limited(seen: HubView, now: datetime) -> bool:
    """As many changes for balance as allowed were made within the last minute."""
    limit = seen.job.spec.reassignment.max_moves_per_minute
    if not limit or seen.ownership is None:
        return False
    recent = {
        move.epoch
        for move in seen.ownership.moves
        if move.cause is Cause.BALANCE and now - move.time < _LIMIT_WINDOW
    }
    return len(recent) >= limit


def _short_of_room(seen: HubView, staying: Sequence[Peer]) -> bool:
    places = sum(candidate.places for candidate in to_candidates(seen.job, staying))
    return places < seen.job.spec.model.resolve().num_experts


def _over_full(seen: HubView, staying: Sequence[Peer]) -> list[PeerId]:
    assert seen.ownership is not None
    owned = Counter(seen.ownership.owners.values())
    return [
        peer.id
        for peer in staying
        if peer.offer is not None and owned[peer.id] > max(peer_capacity(seen.job, peer), 0)
    ]


def _starved(seen: HubView, staying: Sequence[Peer], now: datetime) -> list[PeerId]:
    """Peers that own nothing since they were slow, and are fast enough for an expert by now."""
    ownership, sync = seen.ownership, seen.sync
    assert ownership is not None
    assert sync is not None
    idle = [peer.id for peer in staying if peer.id not in set(ownership.owners.values())]
    settled = sync.version - ownership.changed_in_version >= _SETTLED_ROUNDS
    if not idle or not settled or ownership.replicated or ownership.parked:
        return []
    if _manual(seen) or _balance_limited(seen, now) or not all(map(_is_measured, staying)):
        return []
    due = _placement(seen, to_candidates(seen.job, staying), sync).owners.values()
    return [peer for peer in idle if peer in due]


def _is_measured(peer: Peer) -> bool:
    return peer.live and peer.session is not None and peer.session.tokens_per_second > 0


def _parking_due(seen: HubView, staying: Sequence[Peer]) -> bool:
    """Parked experts wait, and a round has passed or there is room for them now."""
    assert seen.ownership is not None
    assert seen.sync is not None
    if not seen.ownership.parked:
        return False
    candidates = to_candidates(seen.job, staying)
    return any(candidate.places for candidate in candidates) and (
        seen.sync.version != seen.ownership.changed_in_version or not _short_of_room(seen, staying)
    )


def _repair(
    seen: HubView, ownership: Ownership, sync: SyncState, now: datetime
) -> Ownership | None:
    """A new incarnation for a lost volume, a new epoch for a lost ConfigMap; the owners stay."""
    if sync.incarnation > ownership.incarnation:
        return replace(ownership, incarnation=sync.incarnation, changed_at=now)
    was_applied = seen.job.status.incarnation == ownership.incarnation
    is_ours = sync.incarnation in (0, ownership.incarnation)
    if was_applied and is_ours and max(sync.version, 0) < seen.job.status.round:
        return replace(
            ownership, incarnation=ownership.incarnation + 1, changed_at=now, changed_in_version=-1
        )
    if sync.incarnation == ownership.incarnation and sync.epoch > ownership.epoch:
        epoch = sync.epoch + 1
        return replace(
            ownership,
            epoch=epoch,
            granted=dict.fromkeys(ownership.owners, epoch),
            changed_at=now,
        )
    return None


def _carry_out(seen: HubView, change: Change, sync: SyncState, now: datetime) -> Ownership:
    before = seen.ownership
    owners: Mapping[ExpertId, PeerId] = before.owners if before else {}
    replicated = seen.job.spec.algorithm.replicated
    candidates = to_candidates(seen.job, change.peers)
    placement = NOTHING_PLACED if replicated else _placement(seen, candidates, sync)
    epoch = max(before.epoch if before else 0, sync.epoch) + 1
    granted = {
        expert: before.granted[expert] if before and owners.get(expert) == owner else epoch
        for expert, owner in placement.owners.items()
    }
    moves = _moves(change, placement, owners, When(epoch, now, sync.round))
    return Ownership(
        epoch=epoch,
        incarnation=before.incarnation if before else max(sync.incarnation, 1),
        replicated=replicated,
        peers=tuple(sorted(peer.id for peer in change.peers)),
        owners=placement.owners,
        granted=granted,
        parked=placement.parked,
        changed_at=now,
        changed_in_version=sync.version,
        released=released(seen) or (before.released if before else ""),
        resource_version=before.resource_version if before else "",
        moves=(*(before.moves if before else ()), *moves)[-MAX_MOVES:],
    )


def _placement(seen: HubView, candidates: Sequence[Candidate], sync: SyncState) -> Placement:
    return place(
        seen.job.spec.model.resolve().num_experts,
        candidates,
        owners=seen.ownership.owners if seen.ownership else {},
        routed_tokens=sync.routed_tokens,
        rotation=max(sync.version, 0),
    )


def _moves(
    change: Change, placement: Placement, owners: Mapping[ExpertId, PeerId], when: When
) -> list[Move]:
    """Every change of owner; an expert that is parked moves to nobody."""
    return [
        Move(
            epoch=when.epoch,
            time=when.time,
            round=when.round,
            expert=expert,
            source=owners.get(expert),
            target=placement.owners.get(expert),
            cause=change.cause,
            reason=change.why_gone.get(owners.get(expert, PeerId("")), change.reason),
            lower_bound=placement.lower_bound,
        )
        for expert in sorted({*placement.owners, *placement.parked})
        if owners.get(expert) != placement.owners.get(expert)
    ]
