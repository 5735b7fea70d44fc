"""The TrainerAssignments a job should have, derived from everything decided before. Pure.

Run -> Drain (its last push is wanted) -> Stop (the member removes its Job) -> deleted once the
member has.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

from spes_api.job import SpesJob
from spes_api.kinds import (
    SyncTarget,
    TrainerAssignment,
    TrainerAssignmentSpec,
    TrainerTemplate,
)
from spes_api.ranges import format_ranges
from spes_api.schema_base import Metadata

from spes_operator.hub.peers import Peer
from spes_operator.hub.sync_state import Phase, TokenHash
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
_HASH = 10


def leaving_peers(
    seen: HubView, peers: Sequence[Peer], chosen: Sequence[Peer]
) -> frozenset[PeerId]:
    """Peers with an assignment that the job no longer wants."""
    kept = {peer.id for peer in chosen} | {peer.id for peer in peers if _failed(peer)}
    return frozenset(
        peer.id
        for peer in peers
        if peer.assignment is not None and (seen.job.spec.suspend or peer.id not in kept)
    )


def _failed(peer: Peer) -> bool:
    """Its trainer failed for good: the assignment stays, so that it is not made anew for ever."""
    return not peer.unfit and bool(peer.failure)


def wanted_assignments(
    seen: HubView, peers: Sequence[Peer], chosen: Sequence[Peer], leaving: frozenset[PeerId]
) -> tuple[TrainerAssignment, ...]:
    """Every assignment as it should be, in order of peer; those to be deleted are left out."""
    started = {peer.id for peer in chosen}
    wanted = []
    for peer in peers:
        if peer.assignment is None and (
            peer.id not in started or seen.job.spec.suspend or _complete(seen)
        ):
            continue
        if _finished_leaving(seen, peer, leaving):
            continue
        wanted.append(_assignment(seen, peer, _desired(seen, peer, leaving)))
    return tuple(wanted)


def _desired(seen: HubView, peer: Peer, leaving: frozenset[PeerId]) -> Desired:
    if _complete(seen):
        return "Stop" if peer.gone else "Run"
    if peer.id not in leaving:
        return "Run"
    may_stop = peer.gone and (seen.job.spec.suspend or not peer.placed)
    return "Stop" if may_stop else "Drain"


def _complete(seen: HubView) -> bool:
    return seen.sync is not None and seen.sync.phase is Phase.COMPLETE


def _finished_leaving(seen: HubView, peer: Peer, leaving: frozenset[PeerId]) -> bool:
    """The member has removed its Job, or is gone itself; a suspended job keeps its assignments."""
    if peer.id not in leaving or peer.placed or seen.job.spec.suspend or not peer.assignment:
        return False
    if peer.member is None:
        return True
    return peer.assignment.spec.desired == "Stop" and any(
        condition.type == DRAINED and condition.status == "True"
        for condition in peer.assignment.status.conditions
    )


def _assignment(seen: HubView, peer: Peer, desired: Desired) -> TrainerAssignment:
    job, ownership = seen.job, seen.ownership
    template = trainer_template(job)
    key = assignment_key(job, peer.id)
    placed = ownership is not None and peer.id in ownership.peers
    num_experts = job.spec.model.resolve().num_experts
    trained = ownership.trained_by(peer.id, num_experts=num_experts) if ownership else ()
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
            template=template,
            template_hash=template_hash(template),
            join_secret=join_secret_name(key.name),
            sync=SyncTarget(endpoint=seen.server.endpoint, ca_bundle=seen.server.ca_bundle),
            experts=format_ranges(trained),
            ownership_epoch=ownership.epoch if ownership and placed else 0,
        ),
    )


def assignment_key(job: SpesJob, peer: PeerId) -> ObjectKey:
    """Where the assignment of a peer lies."""
    name = assignment_name(job.metadata.name, job.metadata.uid, slot_of(peer))
    return ObjectKey(member_namespace(member_of(peer)), name)


def trainer_template(job: SpesJob) -> TrainerTemplate:
    """The part of the job that a trainer's pod is made from."""
    trainer = job.spec.trainer
    return TrainerTemplate(
        image=trainer.image or job.status.images.trainer,
        num_proc_per_node=trainer.num_proc_per_node,
        resources=trainer.resources,
        grace_period_seconds=trainer.grace_period_seconds,
        datasets=list(job.spec.datasets),
        node_selector=trainer.node_selector,
        priority_class_name=trainer.priority_class_name,
        queue_name=trainer.queue_name,
    )


def template_hash(template: TrainerTemplate) -> str:
    """Depends on what is set alone, so that new fields with defaults restart no trainer."""
    text = json.dumps(template.model_dump(by_alias=True, exclude_defaults=True), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH]


def tokens_to_mint(
    seen: HubView, assignments: Sequence[TrainerAssignment], *, now: datetime
) -> dict[ObjectKey, PeerId]:
    """Join Secrets that are absent, used, or past half their life, with the peer they are for."""
    used = seen.sync.used_token_ids if seen.sync else frozenset()
    secrets = {
        ObjectKey(item.metadata.namespace, item.spec.join_secret): PeerId(item.peer)
        for item in assignments
        if item.spec.desired == "Run"
    }
    return {
        key: peer
        for key, peer in secrets.items()
        if _is_stale(seen.join_secrets.get(key), used, now)
    }


def _is_stale(token: TokenHash | None, used: frozenset[str], now: datetime) -> bool:
    return token is None or token.id in used or token.expires_at - now < TOKEN_LIFE / 2


def to_apply(seen: HubView, wanted: Sequence[TrainerAssignment]) -> tuple[TrainerAssignment, ...]:
    """Those that differ from what is there; a new one only when its trainer could start."""
    present: Mapping[ObjectKey, TrainerAssignment] = {
        ObjectKey(item.metadata.namespace, item.metadata.name): item for item in seen.assignments
    }
    result = []
    for item in wanted:
        current = present.get(ObjectKey(item.metadata.namespace, item.metadata.name))
        secret = ObjectKey(item.metadata.namespace, item.spec.join_secret)
        can_start = seen.sync is not None and seen.server.endpoint and secret in seen.join_secrets
        if current is None and not can_start:
            continue
        if current is None or current.spec != item.spec:
            result.append(item)
    return tuple(result)
