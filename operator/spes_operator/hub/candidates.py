"""Which peers a job uses, and which of them experts can be placed on. Pure.

A candidate first gets an assignment without experts; its trainer connects and catches up in the
background; only then is it placed. So a joining peer never makes a round wait.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta

from spes_api.job import SpesJob

from spes_operator.hub.peers import Peer
from spes_operator.names import PeerId
from spes_operator.placement.capacity import CANNOT_JOIN
from spes_operator.placement.decision import Candidate
from spes_operator.placement.slots import slot_capacity

# Speeds that differ by about this factor are told apart; experts must not move for the noise of
# busy machines.
_RATE_STEP = 1.25


def peer_capacity(job: SpesJob, peer: Peer) -> int:
    """Experts that the peer's slot can hold; `CANNOT_JOIN` if too few to take part."""
    if peer.offer is None:
        return CANNOT_JOIN
    return slot_capacity(
        job.spec,
        memory_bytes=peer.offer.memory_bytes,
        activation_bytes=peer.offer.activation_bytes,
    )


def selected(job: SpesJob, peers: Sequence[Peer]) -> tuple[Peer, ...]:
    """The peers that the job uses: members.max at most, placed and reachable ones first.

    A slot whose trainer does not come up is behind the others; they are tried in turn after it.
    """
    usable = [
        peer
        for peer in peers
        if not peer.unfit and not peer.failure and peer_capacity(job, peer) != CANNOT_JOIN
    ]
    late = _late(job, usable)
    last = max(late, default="")
    usable.sort(
        key=lambda peer: (
            not peer.placed,
            not peer.live,
            peer.id in late,
            not peer.member_heard,
            peer.assignment is None,
            peer.id < last,
            peer.id,
        )
    )
    return tuple(sorted(usable[: job.spec.members.max], key=lambda peer: peer.id))


def _late(job: SpesJob, peers: Sequence[Peer]) -> frozenset[PeerId]:
    """Those whose trainers have had no Session for longer than the job allows."""
    seconds = job.spec.pre_running_deadline_seconds
    if seconds is None:
        return frozenset()
    limit = timedelta(seconds=seconds)
    return frozenset(peer.id for peer in peers if peer.session_lost_for > limit)


def ready_to_place(chosen: Sequence[Peer]) -> tuple[Peer, ...]:
    """Those that have no place yet and could take part in the next round."""
    return tuple(
        peer
        for peer in chosen
        if not peer.placed
        and peer.caught_up
        and peer.member_heard
        and peer.assignment is not None
        and peer.assignment.spec.desired == "Run"
    )


def to_candidates(job: SpesJob, peers: Sequence[Peer]) -> tuple[Candidate, ...]:
    """The peers as placement takes them."""
    rates = coarse_rates([peer.session.tokens_per_second if peer.session else 0 for peer in peers])
    return tuple(
        Candidate(peer=peer.id, capacity=peer_capacity(job, peer), rate=rate)
        for peer, rate in zip(peers, rates, strict=True)
    )


def coarse_rates(tokens_per_second: Sequence[float]) -> list[float | None]:
    """Speeds as shares of the fastest one's, in steps of a quarter; None: not measured yet (0)."""
    fastest = max(tokens_per_second, default=0)
    return [
        _RATE_STEP ** round(math.log(rate / fastest, _RATE_STEP)) if rate > 0 else None
        for rate in tokens_per_second
    ]


def seed_peer(peers: Sequence[Peer], *, current: PeerId | None) -> PeerId | None:
    """Who gives the first version: the present one while it lives, else the best that does.

    After a lost volume the model with the most rounds behind it wins; then the lowest id.
    """
    live = [peer for peer in peers if peer.live and peer.session]
    if any(peer.id == current for peer in live):
        return current
    best = min(live, key=lambda peer: (-_version(peer), peer.id), default=None)
    return best.id if best else None


def _version(peer: Peer) -> int:
    return peer.session.version if peer.session else -1
