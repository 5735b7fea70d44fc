"""Why trainers do not run, as their members say it: what quotas, images and vetoes do to a job.

Pure. A member tells it in the conditions of its assignments; here it becomes a reason of the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spes_operator.hub.facts import Why
from spes_operator.hub.peers import Peer
from spes_operator.reasons import (
    APPLIED,
    IMAGE_PULL_FAILED,
    NAME_CONFLICT,
    POD_CREATION_FAILED,
    POD_READY,
    QUEUED,
    QUOTA_EXCEEDED,
    SLOT_NOT_OFFERED,
    UNSCHEDULABLE,
    VETOED_BY_MEMBER,
)

# What a person mends at the member, or waits for there; all else passes by itself.
_CAUSES = frozenset(
    {
        IMAGE_PULL_FAILED,
        NAME_CONFLICT,
        POD_CREATION_FAILED,
        QUEUED,
        QUOTA_EXCEEDED,
        SLOT_NOT_OFFERED,
        UNSCHEDULABLE,
        VETOED_BY_MEMBER,
    }
)


def hindrance(peer: Peer) -> Why | None:
    """What keeps its trainer from running; None: nothing that the member tells now."""
    is_old_news = peer.member_silent_for > peer.unreachable_after
    if peer.live or is_old_news or peer.assignment is None:
        return None
    if peer.assignment.spec.desired != "Run":
        return None
    for condition in peer.assignment.status.conditions:
        is_told = condition.type in (APPLIED, POD_READY) and condition.status == "False"
        if is_told and condition.reason in _CAUSES:
            return Why(condition.reason, f"{peer.id}: {condition.message}")
    return None


def hindrances(peers: Iterable[Peer]) -> tuple[Why, ...]:
    """One for each reason, in the order of their first peers; each names all of its peers."""
    found: dict[str, list[str]] = {}
    for peer in peers:
        if (why := hindrance(peer)) is not None:
            found.setdefault(why.reason, []).append(why.message)
    return tuple(Why(reason, "; ".join(told)) for reason, told in found.items())


def failures(peers: Sequence[Peer]) -> tuple[Why, ...]:
    """Trainers that will never run, one for each reason."""
    found: dict[str, list[str]] = {}
    for peer in peers:
        if not peer.unfit and peer.failed is not None and peer.failure:
            found.setdefault(peer.failed.reason, []).append(f"{peer.id}: {peer.failure}")
    return tuple(Why(reason, "; ".join(told)) for reason, told in found.items())
