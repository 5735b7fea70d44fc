"""Who is lost to a job, and whether that is acted upon now or held. Pure.

A peer is lost in two ways. It departs: it was drained, its slot was taken away, its trainer failed
for good, its member is not accepted any more; that is certain, so its experts move at once. Or it
is silent: neither heartbeat nor Session for reassignAfterSeconds; that may as well be the hub's own
network, so it is held after a hub start and when most members vanish together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, Self

from spes_api.job import SpesJob

from spes_operator.clock import in_seconds
from spes_operator.hub.peers import Peer
from spes_operator.hub.view import HubView
from spes_operator.names import ANNOTATION_REASSIGN, PeerId, member_of

# A mass loss is held no longer than this many times reassignAfterSeconds while any Session is live.
HOLD_LIMIT = 3
# Fewer members than this cannot make a mass loss: with two of them, one lost is half.
MASS_LOSS_MEMBERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A placed peer that is lost, and why, in words."""

    peer: PeerId
    reason: str
    by_admin: bool = False
    """Drained or removed by a person: never held."""
    silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Why losses are not acted upon now."""

    reason: str
    ends_in: timedelta | None
    """None: at a person's word, or when a member returns."""
    manual: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """What is lost, split by whether it is acted upon."""

    now: tuple[Loss, ...] = ()
    held: tuple[Loss, ...] = ()
    hold: Hold | None = None


def released(seen: HubView) -> str:
    """The value of the reassign annotation if it has not been acted upon, else empty."""
    value = seen.job.metadata.annotations.get(ANNOTATION_REASSIGN, "")
    done = seen.ownership.released if seen.ownership else ""
    return value if value != done else ""


def losses(seen: HubView, peers: Sequence[Peer], chosen: Sequence[Peer]) -> Losses:
    """The placed peers that are lost; those not `chosen` any more are, once they have left.

    Without the sync server nothing is known of Sessions, and no plan could be applied: nothing is
    lost then.
    """
    if seen.sync is None:
        return Losses()
    limits = _Limits.of(seen.job)
    found = [loss for peer in peers if peer.placed and (loss := _loss(peer, limits))]
    known = {loss.peer for loss in found}
    found += [
        Loss(peer=peer.id, reason=f"members.max is {seen.job.spec.members.max}", by_admin=True)
        for peer in peers
        if peer.placed
        and peer.gone
        and peer not in chosen
        and peer.id not in known
        and not peer.unfit
    ]
    if not found or released(seen):
        return Losses(now=tuple(found))
    hold = _manual(seen) or _recovering(seen) or _mass_loss(seen, peers, limits)
    if hold is None:
        return Losses(now=tuple(found))
    certain = [loss for loss in found if loss.by_admin or not (loss.silent or hold.manual)]
    return Losses(
        now=tuple(certain),
        held=tuple(loss for loss in found if loss not in certain),
        hold=hold,
    )


class _Limits(NamedTuple):
    """How long each sign of life may be missing."""

    heartbeat: timedelta
    session: timedelta
    """Of a trainer that is heard no more, and of the one that takes its place."""

    @classmethod
    def of(cls, job: SpesJob) -> Self:
        heartbeat = job.spec.reassignment.reassign_after_seconds
        session = job.spec.pre_running_deadline_seconds or heartbeat
        return cls(timedelta(seconds=heartbeat), timedelta(seconds=session))


def _loss(peer: Peer, limits: _Limits) -> Loss | None:
    return _departure(peer) or _silence_beyond(limits, peer)


def _departure(peer: Peer) -> Loss | None:
    if peer.member and not peer.member.cluster.spec.accepted:
        return Loss(peer=peer.id, reason=peer.unfit, by_admin=True)  # no last push is waited for
    if peer.unfit and peer.gone and not (peer.member and peer.member.report is None):
        by_admin = peer.member is None or peer.offer is not None
        return Loss(peer=peer.id, reason=peer.unfit, by_admin=by_admin)
    if peer.failure and peer.gone:
        return Loss(peer=peer.id, reason=f"its trainer failed: {peer.failure}")
    return None


def _silence_beyond(limits: _Limits, peer: Peer) -> Loss | None:
    if peer.live:
        return None
    if peer.member_silent_for > limits.heartbeat:
        reason = f"member {member_of(peer.id)} is silent for {in_seconds(peer.member_silent_for)}"
        return Loss(peer=peer.id, reason=reason, silent=True)
    if peer.session_lost_for > limits.session:
        reason = f"its trainer has no Session for {in_seconds(peer.session_lost_for)}"
        return Loss(peer=peer.id, reason=reason, silent=True)
    return None


def _manual(seen: HubView) -> Hold | None:
    if seen.job.spec.reassignment.mode != "Manual":
        return None
    return Hold(reason="reassignment.mode is Manual", ends_in=None, manual=True)


def _recovering(seen: HubView) -> Hold | None:
    cooldown = timedelta(seconds=seen.job.spec.reassignment.cooldown_after_hub_restart_seconds)
    left = cooldown - seen.hub_age
    if left <= timedelta():
        return None
    return Hold(reason="the hub started a moment ago", ends_in=left)


def _mass_loss(seen: HubView, peers: Sequence[Peer], limits: _Limits) -> Hold | None:
    """More than half of the members with placed peers vanished together."""
    placed = [peer for peer in peers if peer.placed]
    silence = {
        member: min(_silence(peer) for peer in placed if member_of(peer.id) == member)
        for member in {member_of(peer.id) for peer in placed}
    }
    limit = limits.heartbeat
    heard = {member_of(peer.id) for peer in placed if _silence_beyond(limits, peer) is None}
    vanished = {member: length for member, length in silence.items() if member not in heard}
    if len(vanished) < MASS_LOSS_MEMBERS or 2 * len(vanished) <= len(silence):
        return None
    if max(vanished.values()) - min(vanished.values()) > limit:
        return None  # one after the other: not one cause
    if any(
        member.back_for is not None and member.back_for < max(vanished.values())
        for member in seen.members
        if member.name in silence and member.name not in vanished
    ):
        return None
    left = HOLD_LIMIT * limit - min(vanished.values())
    any_live = any(peer.live for peer in peers)
    if any_live and left <= timedelta():
        return None
    return Hold(
        reason=f"{len(vanished)} of {len(silence)} members vanished together",
        ends_in=left if any_live else None,
    )


def _silence(peer: Peer) -> timedelta:
    return timedelta() if peer.live else max(peer.member_silent_for, peer.session_lost_for)
