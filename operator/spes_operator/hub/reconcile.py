"""reconcile_job: one pass over one job, from all that is seen to all that is to be written. Pure.

Called by the hub's controller for every job that changed, and again after `again_in`. Decides
nothing twice: what was written is seen on the next pass. Ownership is the one commit point;
everything else is derived from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from spes_api.job import SpesJobStatus

from spes_operator.clock import from_text
from spes_operator.hub.assignments import (
    leaving_peers,
    to_apply,
    tokens_to_mint,
    unneeded_secrets,
    wanted_assignments,
)
from spes_operator.hub.candidates import selected
from spes_operator.hub.decide import next_ownership, startable
from spes_operator.hub.events import expiry_events, job_events, recovery_events, repair_events
from spes_operator.hub.facts import Facts
from spes_operator.hub.lifetime import Activity
from spes_operator.hub.membership import losses
from spes_operator.hub.peers import Peer, survey
from spes_operator.hub.status import job_status
from spes_operator.hub.sync_host import GRACE
from spes_operator.hub.sync_plan import next_drain, next_sync_plan
from spes_operator.hub.view import HubPlan, HubView
from spes_operator.names import ObjectKey

# How often a job is looked at without any change: signs of life get older by themselves.
_FEWEST_LOOKS = timedelta(seconds=30)


def reconcile_job(seen: HubView, *, now: datetime) -> HubPlan:
    """What to write now, and when to look again."""
    peers = survey(seen, now=now)
    chosen = selected(seen.job, peers)
    lost = losses(seen, peers, chosen)
    can_start = seen.ownership is None and startable(seen, peers)
    again_in = _again_in(seen)
    ownership = next_ownership(seen, peers, lost, now=now)
    if ownership is not None:
        return HubPlan(
            ownership=ownership,
            status=seen.job.status,
            events=repair_events(seen, ownership, now=now),
            again_in=timedelta(),
            startable=can_start,
        )
    leaving = leaving_peers(seen, peers, chosen)
    wanted = wanted_assignments(seen, peers, chosen, leaving)
    kept = {ObjectKey(item.metadata.namespace, item.metadata.name) for item in wanted}
    present = [ObjectKey(item.metadata.namespace, item.metadata.name) for item in seen.assignments]
    unwanted = tuple(key for key in present if key not in kept and seen.may_write(key))
    sync_plan = next_sync_plan(seen, peers)
    activity = _activity(seen, now)
    facts = Facts(seen=seen, peers=peers, chosen=chosen, lost=lost, activity=activity)
    status = job_status(facts, now=now)
    is_expired = _is_expired(seen, peers, status, now)
    return HubPlan(
        join_secrets=tokens_to_mint(seen, wanted, now=now),
        sync_plan=sync_plan,
        drain=next_drain(seen, peers, leaving),
        apply=to_apply(seen, wanted),
        delete_secrets=unneeded_secrets(seen, wanted, unwanted),
        delete=unwanted,
        status=status,
        events=(
            *recovery_events(seen, sync_plan, now=now),
            *job_events(seen.job, status, seen.ownership, now=now),
            *(expiry_events(seen.job, now=now) if is_expired else ()),
        ),
        again_in=min((again_in, *_appointments(seen, activity, status, now))),
        delete_job=is_expired,
        startable=can_start,
    )


def _activity(seen: HubView, now: datetime) -> Activity:
    """Counted from the first placement on, whatever the job lacks meanwhile."""
    trains = seen.ownership is not None and not seen.job.spec.suspend and not seen.complete
    return Activity.of(seen.job.status).next(seen.job.spec, trains=trains, now=now)


def _is_expired(seen: HubView, peers: Sequence[Peer], status: SpesJobStatus, now: datetime) -> bool:
    """What was announced has come, and nobody pushes any more, or has had the time to."""
    if not status.expires_at or status.expires_at != seen.job.status.expires_at:
        return False
    since = now - from_text(status.expires_at)
    return since >= timedelta() and (since > GRACE or all(peer.gone for peer in peers))


def _appointments(
    seen: HubView, activity: Activity, status: SpesJobStatus, now: datetime
) -> Iterator[timedelta]:
    """Until moments that were fixed before; not those that are over."""
    ends_in = activity.ends_in(seen.job.spec, now)
    expires_in = from_text(status.expires_at) - now if status.expires_at else None
    for length in (ends_in, expires_in):
        if length is not None and length > timedelta():
            yield length


def _again_in(seen: HubView) -> timedelta:
    """Often enough that no limit of the job is noticed late by more than a quarter of it."""
    if (seen.halted or seen.complete) and not seen.assignments:
        return _FEWEST_LOOKS  # nobody is there who could fall silent
    spec = seen.job.spec
    limits = (spec.reassignment.unreachable_after_seconds, spec.pre_running_deadline_seconds)
    return min(_FEWEST_LOOKS, *(timedelta(seconds=limit) / 4 for limit in limits if limit))
