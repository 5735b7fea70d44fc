"""Trainers whose pod is not the one that the job describes now: who makes room for it, and when.

Pure. A trainer that works pushes, leaves and stops as in a drain, but keeps its experts: its
successor finds them. One at a time, and the next when the last has caught up; one that does not
work has nothing to lose and is replaced at once. If the new pod does not come up anywhere, no
further trainer is given up for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from spes_api.job import SpesJob

from spes_operator.hub.causes import hindrance
from spes_operator.hub.peers import Peer
from spes_operator.hub.template import template_hash, trainer_template
from spes_operator.hub.view import HubView
from spes_operator.names import PeerId
from spes_operator.reasons import IMAGE_PULL_FAILED, POD_READY, VETOED_BY_MEMBER

# What its template may be the cause of; whatever else keeps a pod away says nothing about that.
_OF_THE_TEMPLATE = frozenset({IMAGE_PULL_FAILED, VETOED_BY_MEMBER})


def replaced_now(seen: HubView, peers: Sequence[Peer], chosen: Sequence[Peer]) -> frozenset[PeerId]:
    """The trainers that make room now; none while nothing is known of Sessions."""
    if seen.sync is None:
        return frozenset()
    current = _current(seen.job)
    outdated = [peer for peer in peers if _runs(peer) and _is_outdated(peer, current)]
    down = {peer.id for peer in outdated if not _works(peer)}
    working = [peer.id for peer in outdated if peer.id not in down and peer in chosen]
    may_begin = not down and not _awaited(peers, current) and all(map(_is_there, chosen))
    return frozenset({*down, *(working[:1] if may_begin else ())})


def progress(job: SpesJob, peers: Sequence[Peer], chosen: Sequence[Peer], *, begun: bool) -> str:
    """How far the replacement is, in a sentence; empty: every trainer is as the job describes.

    Args:
        job: The job.
        peers: All that have to do with it.
        chosen: Those that it uses.
        begun: It was under way a moment ago.
    """
    current = _current(job)
    old = [peer.id for peer in chosen if _is_outdated(peer, current)]
    away = [peer.id for peer in chosen if peer.placed and not peer.caught_up]
    if not old and not (begun and away):
        return ""
    done = len(chosen) - len({*old, *away})
    awaited = ", ".join(sorted({*away, *_awaited(peers, current)}))
    told = f"{done} of {len(chosen)} trainers run the job's present template"
    return f"{told}; waiting for {awaited}" if awaited else f"{told}; {old[0]} is next"


def _current(job: SpesJob) -> str:
    return template_hash(trainer_template(job))


def _is_outdated(peer: Peer, current: str) -> bool:
    """Its pod was made from another template than the job's present one."""
    return peer.assignment is not None and peer.assignment.spec.template_hash != current


def _runs(peer: Peer) -> bool:
    return peer.assignment is not None and peer.assignment.spec.desired == "Run"


def _works(peer: Peer) -> bool:
    """Its Session is live, or its member still says so: the server may have just restarted."""
    if peer.live or peer.assignment is None:
        return peer.live
    ready = {item.type: item.status for item in peer.assignment.status.conditions}
    return peer.member_heard and ready.get(POD_READY) == "True"


def _is_there(peer: Peer) -> bool:
    """Nothing is lost for the job if another one leaves now."""
    if peer.placed:
        return _runs(peer) and peer.caught_up
    return _runs(peer) or not peer.member_heard


def _awaited(peers: Sequence[Peer], current: str) -> tuple[PeerId, ...]:
    """Trainers of the present template that must come up first: it is not known to work."""
    new = [
        peer for peer in peers if not peer.unfit and _runs(peer) and not _is_outdated(peer, current)
    ]
    if any(peer.caught_up for peer in new):
        return ()
    return tuple(peer.id for peer in new if not _waits_for_room(peer))


def _waits_for_room(peer: Peer) -> bool:
    """It says nothing about its template."""
    why = hindrance(peer)
    return why is not None and why.reason not in _OF_THE_TEMPLATE
