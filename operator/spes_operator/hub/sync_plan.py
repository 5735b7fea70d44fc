"""What the sync server must be told, and which peers must be asked for their last push. Pure.

The server keeps what it was told; a plan is sent again only when it differs from the last one
applied, or when the server shows that it does not know it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from spes_operator.hub.assignments import Leaving
from spes_operator.hub.candidates import seed_peer
from spes_operator.hub.peers import Peer
from spes_operator.hub.sync_state import DrainOrder, Phase, SyncPlan
from spes_operator.hub.view import HubView
from spes_operator.names import PeerId

# Since a peer was asked that this hub process never asked.
_LONG = timedelta.max


def next_sync_plan(seen: HubView, peers: Sequence[Peer]) -> SyncPlan | None:
    """The plan to apply, or None if the server has it."""
    sync, ownership = seen.sync, seen.ownership
    if sync is None or (ownership is None and sync.epoch > 0):
        return None  # an epoch below the server's would be refused; the next one goes above it
    plan = SyncPlan(
        job_uid=seen.job.metadata.uid,
        incarnation=ownership.incarnation if ownership else max(sync.incarnation, 1),
        settings_json=seen.job.spec.canonical_json(),
        epoch=ownership.epoch if ownership else 0,
        owners=ownership.owners if ownership else {},
        granted=ownership.granted if ownership else {},
        parked=ownership.parked if ownership else (),
        replicated=ownership is not None and ownership.replicated,
        peers=ownership.peers if ownership else (),
        seed_peer=_seed(seen, peers),
        tokens=tuple(sorted(seen.join_secrets.values(), key=lambda token: token.id)),
    )
    known = (
        plan == seen.applied
        and sync.job_uid == plan.job_uid
        and sync.incarnation == plan.incarnation
        and sync.epoch >= plan.epoch
    )
    return None if known else plan


def _seed(seen: HubView, peers: Sequence[Peer]) -> PeerId | None:
    current = seen.applied.seed_peer if seen.applied else None
    if seen.sync is not None and seen.sync.phase is Phase.SEEDING:
        return seed_peer(peers, current=current)
    return current


def next_drain(seen: HubView, peers: Sequence[Peer], leaving: Leaving) -> DrainOrder | None:
    """The peers that leave, have a Session and were not asked yet, or in vain.

    A sync server that starts anew has forgotten whom it asked.
    """
    grace = timedelta(seconds=seen.job.spec.trainer.grace_period_seconds)
    asked = [
        peer
        for peer in peers
        if peer.id in leaving.peers
        and peer.live
        and peer.assignment is not None
        and (peer.assignment.spec.desired == "Run" or seen.asked.get(peer.id, _LONG) > grace)
    ]
    if not asked:
        return None
    reasons = dict.fromkeys(_drain_reason(seen, peer, leaving) for peer in asked)
    return DrainOrder(
        peers=tuple(peer.id for peer in asked), grace=grace, reason="; ".join(reasons)
    )


def _drain_reason(seen: HubView, peer: Peer, leaving: Leaving) -> str:
    if seen.halted:
        return "the job is suspended" if seen.job.spec.suspend else "the job's time is over"
    if peer.unfit:
        return peer.unfit
    is_back = peer.id in leaving.returning
    return "its trainer is replaced" if is_back else "members.max is reached"
