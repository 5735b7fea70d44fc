"""The TrainerAssignments a job should have, derived from everything decided before. Pure.

Run -> Drain (its last push is wanted) -> Stop (the member removes its Job) -> deleted once the
member has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from spes_api.job import SpesJob
from spes_api.kinds import (
    SyncTarget,
    TrainerAssignment,
    TrainerAssignmentSpec,
)
from spes_api.ranges import format_ranges
from spes_api.schema_base import Metadata

from spes_operator.hub.peers import Peer
from spes_operator.hub.replacement import replaced_now
from spes_operator.hub.sync_host import GRACE
from spes_operator.hub.sync_state import TokenHash
from spes_operator.hub.template import template_hash, trainer_template
from spes_operator.hub.view import HubView
from spes_operator.names import (
    LABEL_JOB,
    LABEL_JOB_UID,
    ObjectKey,
    PeerId,
    assignment_name,
    join_secret_name,
    member_namespace,
    member_of,
    slot_of,
)
from spes_operator.reasons import DRAINED

Desired = Literal["Run", "Drain", "Stop"]

# Life of a one-time token; the hub replaces it after half of it.
TOKEN_LIFE = timedelta(hours=24)


class Leaving(NamedTuple):
    """Peers whose trainers push, leave and stop."""

    peers: frozenset[PeerId]
    returning: frozenset[PeerId]
    """Of these, who keep their experts: a trainer takes their place again."""


def leaving_peers(seen: HubView, peers: Sequence[Peer], chosen: Sequence[Peer]) -> Leaving:
    """Peers with a trainer that the job does not want, or not this one.

    Who was asked to leave leaves, even if the job wants it again meanwhile: it comes back with a
    new Job.
    """
    wanted = {peer.id for peer in chosen}
    kept = wanted | {peer.id for peer in peers if _failed(peer)}
    replaced = replaced_now(seen, peers, chosen)
    leaving = frozenset(
        peer.id
        for peer in peers
        if peer.assignment is not None
        and (
            seen.halted
            or peer.id not in kept
            or peer.id in replaced
            or peer.assignment.spec.desired != "Run"
        )
    )
    if seen.halted:
        return Leaving(leaving, leaving)
    return Leaving(leaving, frozenset() if seen.complete else leaving & wanted)


def _failed(peer: Peer) -> bool:
    """Its trainer failed for good: the assignment stays, so that it is not made anew for ever."""
    return not peer.unfit and bool(peer.failure)


def wanted_assignments(
    seen: HubView, peers: Sequence[Peer], chosen: Sequence[Peer], leaving: Leaving
) -> tuple[TrainerAssignment, ...]:
    """Every assignment as it should be, in order of peer; those to be deleted are left out."""
    started = frozenset() if seen.halted or seen.complete else {peer.id for peer in chosen}
    make = _Maker(seen)
    return tuple(
        make(peer, _desired(seen, peer, leaving))
        for peer in peers
        if (peer.id in started if peer.assignment is None else not _has_left(peer, leaving))
    )


def _desired(seen: HubView, peer: Peer, leaving: Leaving) -> Desired:
    if seen.sync is not None and seen.complete:
        return "Stop" if peer.gone else "Run"
    if peer.id not in leaving.peers:
        return "Run"
    if peer.assignment is not None and peer.assignment.spec.desired == "Stop":
        return "Stop"
    is_sure = seen.sync is not None or seen.hub_age > GRACE
    may_go = peer.id in leaving.returning or not peer.placed
    return "Stop" if peer.gone and is_sure and may_go else "Drain"


def _has_left(peer: Peer, leaving: Leaving) -> bool:
    """The member has removed its Job, or is gone itself; nobody waits for its experts."""
    if peer.id not in leaving.peers or not peer.assignment:
        return False
    if peer.placed and peer.id not in leaving.returning:
        return False
    if peer.member is None:
        return True
    return peer.assignment.spec.desired == "Stop" and any(
        condition.type == DRAINED and condition.status == "True"
        for condition in peer.assignment.status.conditions
    )


class _Maker:
    """Makes the assignments of one pass; what they have in common is found once.

    What is there and stays as it is is not made again: hubs look at hundreds over and over.
    """

    def __init__(self, seen: HubView) -> None:
        self._seen = seen
        self._template = trainer_template(seen.job)
        self._hash = template_hash(self._template)
        self._sync = SyncTarget(endpoint=seen.server.endpoint, ca_bundle=seen.server.ca_bundle)
        num_experts = seen.job.spec.model.resolve().num_experts
        self._trained = seen.ownership.trained(num_experts=num_experts) if seen.ownership else {}

    def __call__(self, peer: Peer, desired: Desired) -> TrainerAssignment:
        """What is there keeps its template: another one takes another Job (`replacement`)."""
        job, ownership, present = self._seen.job, self._seen.ownership, peer.assignment
        key = assignment_key(job, peer.id)
        limit = job.spec.backoff_limit
        experts = format_ranges(self._trained.get(peer.id, ()))
        epoch = ownership.epoch if ownership and peer.placed else 0
        if present and _changing(present) == (desired, limit, self._sync, experts, epoch):
            return present
        return TrainerAssignment(
            metadata=Metadata(
                namespace=key.namespace,
                name=key.name,
                labels={LABEL_JOB: job.metadata.name, LABEL_JOB_UID: job.metadata.uid},
            ),
            spec=TrainerAssignmentSpec(
                job_uid=job.metadata.uid,
                slot=slot_of(peer.id),
                desired=desired,
                template=present.spec.template if present else self._template,
                template_hash=present.spec.template_hash if present else self._hash,
                backoff_limit=limit,
                join_secret=join_secret_name(key.name),
                sync=self._sync,
                experts=experts,
                ownership_epoch=epoch,
            ),
        )


def _changing(item: TrainerAssignment) -> tuple[object, ...]:
    """All that another pass may see otherwise."""
    spec = item.spec
    return spec.desired, spec.backoff_limit, spec.sync, spec.experts, spec.ownership_epoch


def assignment_key(job: SpesJob, peer: PeerId) -> ObjectKey:
    """Where the assignment of a peer lies."""
    name = assignment_name(job.metadata.name, job.metadata.uid, slot_of(peer))
    return ObjectKey(member_namespace(member_of(peer)), name)


def tokens_to_mint(
    seen: HubView, assignments: Sequence[TrainerAssignment], *, now: datetime
) -> dict[ObjectKey, PeerId]:
    """Join Secrets that are absent, used, or past half their life, with the peer they are for.

    Only where they are looked at: elsewhere each pass would miss the one that it made before.
    """
    open_to = {member_namespace(one.name) for one in seen.members if one.is_open}
    used = seen.sync.used_token_ids if seen.sync else frozenset()
    secrets = {
        ObjectKey(item.metadata.namespace, item.spec.join_secret): PeerId(item.peer)
        for item in assignments
        if item.spec.desired == "Run" and item.metadata.namespace in open_to
    }
    return {
        key: peer
        for key, peer in secrets.items()
        if _is_stale(seen.join_secrets.get(key), used, now)
    }


def unneeded_secrets(
    seen: HubView, wanted: Sequence[TrainerAssignment], deleted: Sequence[ObjectKey]
) -> tuple[ObjectKey, ...]:
    """Join Secrets of assignments that are deleted now, or that are gone or were never made."""
    kept = {ObjectKey(item.metadata.namespace, item.spec.join_secret) for item in wanted}
    kept |= {_secret_of(key) for key in seen.unreadable}
    theirs = {_secret_of(key) for key in deleted}
    return tuple(sorted((seen.join_secrets.keys() | theirs) - kept))


def _secret_of(assignment: ObjectKey) -> ObjectKey:
    return ObjectKey(assignment.namespace, join_secret_name(assignment.name))


def _is_stale(token: TokenHash | None, used: frozenset[str], now: datetime) -> bool:
    return token is None or token.id in used or token.expires_at - now < TOKEN_LIFE / 2


def to_apply(seen: HubView, wanted: Sequence[TrainerAssignment]) -> tuple[TrainerAssignment, ...]:
    """Those that differ from what is there; a new one only when its trainer could start."""
    present: Mapping[ObjectKey, TrainerAssignment] = {
        ObjectKey(item.metadata.namespace, item.metadata.name): item for item in seen.assignments
    }
    result = []
    for item in wanted:
        key = ObjectKey(item.metadata.namespace, item.metadata.name)
        current = present.get(key)
        secret = ObjectKey(item.metadata.namespace, item.spec.join_secret)
        can_start = seen.sync is not None and seen.server.endpoint and secret in seen.join_secrets
        if not seen.may_write(key) or (current is None and not can_start):
            continue
        if current is None or current.spec != item.spec:
            result.append(item)
    return tuple(result)
