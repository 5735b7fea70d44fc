"""What is left of a deleted job, and in which order it goes. Pure.

The job itself is gone at once: nothing holds it back. Its peers get the time of the sync server's
grace for their last pushes; then assignments and server go, whether or not anybody answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from spes_operator.hub.sync_state import DrainOrder, SyncState
from spes_operator.names import ObjectKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Objects derived from a job that exists no more."""

    job_uid: str
    assignments: tuple[ObjectKey, ...]
    secrets: tuple[ObjectKey, ...]
    config_maps: tuple[ObjectKey, ...]
    servers: tuple[tuple[str, ObjectKey], ...]
    """Kind and key of what its sync server consists of."""
    sync: SyncState | None
    """None: the server is gone or away."""
    grace: timedelta
    asked_for: timedelta | None
    """How long ago the peers were asked to end; None: not yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What to do now."""

    drain: DrainOrder | None = None
    delete: tuple[tuple[str, ObjectKey], ...] = ()
    """Kind and key, in order."""
    again_in: timedelta | None = None
    """None: nothing is left to do."""


_POLL = timedelta(seconds=1)


def plan_removal(left: Leftover) -> Removal:
    """Peers first, then everything else."""
    has_peers = left.sync is not None and any(
        peer.connected and not peer.left for peer in left.sync.peers.values()
    )
    if has_peers and left.asked_for is None:
        order = DrainOrder(peers=(), grace=left.grace, reason="the job was deleted", stop=True)
        return Removal(drain=order, again_in=_POLL)
    if has_peers and left.asked_for is not None and left.asked_for < left.grace:
        return Removal(again_in=_POLL)
    return Removal(
        delete=(
            *(("TrainerAssignment", key) for key in left.assignments),
            *left.servers,
            *(("Secret", key) for key in left.secrets),
            *(("ConfigMap", key) for key in left.config_maps),
        )
    )
