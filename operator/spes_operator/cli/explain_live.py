"""From a hub's objects to why a job's experts are where they are, or what it waits for. Pure.

The hub's own decisions are asked: which members it may use, and which peers it chooses. It alone
hears peers' speeds, so where nothing is placed yet all count as equally fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from spes_api.job import SpesJob
from spes_api.kinds import MemberCluster, MemberReport, TrainerAssignment

from spes_operator.hub.candidates import peer_capacity, selected
from spes_operator.hub.causes import hindrance
from spes_operator.hub.heartbeats import SILENT_INTERVALS
from spes_operator.hub.ownership import Ownership
from spes_operator.hub.peers import Peer, objections, survey
from spes_operator.hub.twins import with_twins
from spes_operator.hub.view import HubView, MemberSeen, ServerSeen
from spes_operator.names import member_namespace
from spes_operator.placement.capacity import CANNOT_JOIN
from spes_operator.placement.costs import GB
from spes_operator.placement.estimate import (
    Estimate,
    Slot,
    estimate_equal_peers,
    estimate_slots,
)
from spes_operator.placement.slots import Room
from spes_operator.reasons import READY, RETURNING

# Changes of ownership that are told, newest last.
_LAST_CHANGES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveJob:
    """A job of a hub, and all that decides where its experts are."""

    job: SpesJob
    members: tuple[MemberCluster, ...]
    reports: tuple[MemberReport, ...]
    assignments: tuple[TrainerAssignment, ...] = ()
    """Of this job."""
    ownership: Ownership | None = None
    """None: nothing is placed yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What is said of it."""

    estimate: Estimate
    """On its peers; on equal ones where it has none."""
    waits_for: str = ""
    """Why it does not train; empty: it does."""
    unused: tuple[str, ...] = ()
    """Members and slots that it does not use, each with the reason."""


def explain_live(seen: LiveJob, *, now: datetime) -> Explanation:
    """Who owns what or would own it, why others do not, and what the job waits for."""
    view = _view(seen)
    peers = survey(view, now=now)
    chosen = selected(seen.job, peers)
    return Explanation(
        estimate=_estimate(seen, peers, chosen),
        waits_for=_waits_for(seen.job),
        unused=(*_unused_members(view), *_unused_peers(seen.job, peers, chosen)),
    )


def _view(seen: LiveJob) -> HubView:
    reports = {report.metadata.namespace: report for report in seen.reports}
    return HubView(
        job=seen.job,
        ownership=seen.ownership,
        members=with_twins(
            [
                _member(cluster, reports.get(member_namespace(cluster.metadata.name)))
                for cluster in seen.members
            ]
        ),
        assignments=seen.assignments,
        server=ServerSeen(),
        sync=None,
        hub_age=timedelta(),
    )


def _member(cluster: MemberCluster, report: MemberReport | None) -> MemberSeen:
    """Heartbeats are the hub's to hear; its condition Ready tells what it heard."""
    ready = next((one for one in cluster.status.conditions if one.type == READY), None)
    is_silent = ready is not None and ready.status == "Unknown"
    interval = timedelta(seconds=cluster.spec.heartbeat.interval_seconds)
    return MemberSeen(
        cluster=cluster,
        report=report,
        silent_for=(SILENT_INTERVALS + 1) * interval if is_silent else timedelta(),
        back_for=timedelta() if ready is not None and ready.reason == RETURNING else None,
    )


def _estimate(seen: LiveJob, peers: Sequence[Peer], chosen: Sequence[Peer]) -> Estimate:
    ownership = seen.ownership
    used = chosen if ownership is None else [peer for peer in peers if peer.placed]
    slots = {
        peer.id: Slot(room=Room(peer.offer.memory_bytes, peer.offer.activation_bytes), rate=None)
        for peer in used
        if peer.offer is not None
    }
    if not slots:
        return estimate_equal_peers(seen.job)
    if ownership is None:
        return estimate_slots(seen.job, slots)
    estimate = estimate_slots(seen.job, slots, owners=ownership.owners)
    return replace(estimate, reasons=tuple(_owned(seen.job, ownership)))


def _owned(job: SpesJob, ownership: Ownership) -> Iterator[str]:
    """Who owns what now, and how the last changes came about."""
    num_experts = job.spec.model.resolve().num_experts
    for peer in ownership.peers:
        count = len(ownership.trained_by(peer, num_experts=num_experts))
        verb = "trains" if ownership.replicated else "owns"
        yield f"{peer} {verb} {count} of {num_experts} experts in epoch {ownership.epoch}"
    if ownership.parked:
        yield f"{len(ownership.parked)} experts are parked: the peers have no memory for them"
    epochs = sorted({move.epoch for move in ownership.moves})[-_LAST_CHANGES:]
    for epoch in epochs:
        moves = [move for move in ownership.moves if move.epoch == epoch]
        least = f"at least {moves[0].lower_bound} had to"
        yield f"epoch {epoch}: {len(moves)} moved ({least}): {moves[0].reason}"


def _waits_for(job: SpesJob) -> str:
    ready = next((one for one in job.status.conditions if one.type == READY), None)
    if ready is None:
        return "the hub has not looked at it yet; does spes-operator hub run?"
    return "" if ready.status == "True" else f"{ready.reason}: {ready.message}"


def _unused_members(view: HubView) -> Iterator[str]:
    for member in view.members:
        found = list(objections(view.job, member))
        if not found and member.is_silent:
            found = [f"member {member.name} is silent: it gets no experts until it is heard"]
        if not found and member.is_returning:
            found = [f"member {member.name} is back from a silence: it gets experts in a while"]
        yield from found


def _unused_peers(job: SpesJob, peers: Sequence[Peer], chosen: Sequence[Peer]) -> Iterator[str]:
    """Slots of members that may be used."""
    for peer in peers:
        if peer.unfit:
            continue
        if (why := _why_unused(job, peer, is_chosen=peer in chosen)) and not peer.placed:
            yield why


def _why_unused(job: SpesJob, peer: Peer, *, is_chosen: bool) -> str:
    if peer.failed is not None:
        return f"{peer.id}: {peer.failed.reason}: {peer.failed.message}"
    if peer.offer is not None and peer_capacity(job, peer) == CANNOT_JOIN:
        return f"{peer.id}: its {peer.offer.memory_bytes / GB:.3f} GB cannot hold the model"
    if not is_chosen:
        return f"{peer.id}: members.max is {job.spec.members.max}, others come first"
    why = hindrance(peer)
    return f"{why.reason}: {why.message}" if why else ""
