"""From the hub's objects to what `spes status` shows. Pure.

A job is read as JSON, not as a model: one with mistakes in its spec must be shown too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from spes_api.job import SpesJob
from spes_api.kinds import MemberCluster, TrainerAssignment
from spes_api.schema_base import Condition

from spes_operator.cli.status_objects import Objects
from spes_operator.cli.status_peers import peer_row, peer_rows
from spes_operator.clock import from_text
from spes_operator.display.status_view import (
    DeletedJob,
    DeletedView,
    JobRow,
    JobView,
    MemberRow,
    PeerRow,
    StatusView,
    Volume,
)
from spes_operator.display.view import EventLine
from spes_operator.k8s.api import JsonObject
from spes_operator.k8s.typed import parse
from spes_operator.names import LABEL_JOB, LABEL_JOB_UID, PeerId, member_of
from spes_operator.reasons import (
    ACCEPTED,
    CREDENTIALS_VALID,
    DEGRADED,
    DRAINED,
    READY,
)

# More than fit on any screen.
_MAX_EVENTS = 50


def status_view(found: Objects) -> StatusView:
    """Every job and every member."""
    return StatusView(
        jobs=tuple(map(_job, found.jobs)),
        members=tuple(map(_member, _members(found))),
        notes=tuple(found.notes),
    )


def job_view(found: Objects) -> JobView:
    """The one job that was read."""
    (obj,) = found.jobs
    members = {member.metadata.name: member for member in _members(found)}
    peers = peer_rows(obj, _assignments(found), members)
    used = {member_of(PeerId(peer.peer)) for peer in peers}
    selector = obj["spec"].get("members", {}).get("selector", {})
    return JobView(
        job=_job(obj),
        replicated=_is_replicated(obj),
        peers=peers,
        members=tuple(
            _member(member)
            for name, member in members.items()
            if name in used or selector.items() <= member.metadata.labels.items()
        ),
        events=_events(obj, found.events),
        notes=tuple(found.notes),
    )


def deleted_view(found: Objects) -> DeletedView:
    """What is left of jobs that are not among those that there are."""
    present = {job["metadata"]["uid"] for job in found.jobs}
    members = {member.metadata.name: member for member in _members(found)}
    peers: dict[str, list[PeerRow]] = {}
    volumes: dict[str, list[Volume]] = {}
    names: dict[str, str] = {}
    for item in _assignments(found):
        uid = item.spec.job_uid
        if uid not in present:
            names[uid] = item.metadata.labels.get(LABEL_JOB, "")
            peers.setdefault(uid, []).append(peer_row(item, (), members))
    for claim in found.volumes:
        labels = claim["metadata"]["labels"]
        if (uid := labels[LABEL_JOB_UID]) not in present:
            names[uid] = labels.get(LABEL_JOB, "")
            volumes.setdefault(uid, []).append(_volume(claim))
    return DeletedView(
        deleted=tuple(
            DeletedJob(
                job=name,
                uid=uid,
                peers=tuple(peers.get(uid, ())),
                volumes=tuple(volumes.get(uid, ())),
            )
            for uid, name in sorted(names.items(), key=lambda item: (item[1], item[0]))
        ),
        notes=tuple(found.notes),
    )


def _members(found: Objects) -> list[MemberCluster]:
    parsed = (parse(MemberCluster, obj) for obj in found.members)
    return [member for member in parsed if member is not None]


def _assignments(found: Objects) -> list[TrainerAssignment]:
    parsed = (parse(TrainerAssignment, obj) for obj in found.assignments)
    return [item for item in parsed if item is not None]


def _job(obj: JsonObject) -> JobRow:
    metadata, spec, status = obj["metadata"], obj.get("spec", {}), obj.get("status", {})
    conditions = {one["type"]: one for one in status.get("conditions", ())}
    ready, degraded = conditions.get(READY, {}), conditions.get(DEGRADED, {})
    members, experts = status.get("members", {}), status.get("experts", {})
    return JobRow(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        ready=ready.get("status", "Unknown"),
        reason=ready.get("reason", ""),
        message=ready.get("message", "") if ready else "the hub has not looked at it yet",
        degraded=degraded.get("message", "") if degraded.get("status") == "True" else "",
        peers_ready=members.get("ready", 0),
        peers_wanted=members.get("desired", 0),
        experts_total=experts.get("total", 0),
        experts_owned=experts.get("owned", 0),
        experts_parked=experts.get("parked", 0),
        round=status.get("round", 0),
        ownership_epoch=status.get("ownershipEpoch", 0),
        tokens=status.get("tokens", 0),
        max_tokens=spec.get("training", {}).get("maxTokens", 0),
        loss=status.get("loss"),
        created=_moment(metadata.get("creationTimestamp")),
    )


def _is_replicated(obj: JsonObject) -> bool:
    try:
        return SpesJob.model_validate(obj).spec.algorithm.replicated
    except ValidationError:
        return False


def _member(member: MemberCluster) -> MemberRow:
    status = member.status
    conditions = {one.type: one for one in status.conditions}
    return MemberRow(
        name=member.metadata.name,
        state=_member_state(member, conditions),
        problem=_member_problem(conditions),
        slots=status.slots,
        gpus=status.gpus,
        jobs=status.jobs,
        version=status.version,
        last_heartbeat=_moment(status.last_heartbeat_observed),
        created=_moment(member.metadata.creation_timestamp),
    )


def _member_state(member: MemberCluster, conditions: Mapping[str, Condition]) -> str:
    def holds(kind: str) -> str:
        return conditions[kind].status if kind in conditions else ""

    if not member.spec.accepted:
        return "not accepted"
    if member.spec.unschedulable:
        return "drained" if holds(DRAINED) == "True" else "draining"
    words = {"True": "ready", "Unknown": "silent", "False": "not ready"}
    return words.get(holds(READY), "not looked at")


def _member_problem(conditions: Mapping[str, Condition]) -> str:
    """The first of them that is not as it should be; its words say what to do."""
    return next(
        (
            conditions[kind].message
            for kind in (ACCEPTED, READY, CREDENTIALS_VALID)
            if kind in conditions and conditions[kind].status != "True"
        ),
        "",
    )


def _events(job: JsonObject, events: Sequence[JsonObject]) -> tuple[EventLine, ...]:
    """Those about this job and not about an earlier one of its name, oldest first."""
    lines = [
        EventLine(time=time, text=event.get("message", ""), warning=event.get("type") == "Warning")
        for event in events
        if event["involvedObject"].get("uid") == job["metadata"]["uid"]
        if (time := _moment(event.get("eventTime") or event.get("lastTimestamp"))) is not None
    ]
    return tuple(sorted(lines, key=lambda line: line.time)[-_MAX_EVENTS:])


def _volume(claim: JsonObject) -> Volume:
    metadata, requests = claim["metadata"], claim["spec"]["resources"]["requests"]
    size = claim.get("status", {}).get("capacity", requests)["storage"]
    return Volume(namespace=metadata["namespace"], name=metadata["name"], size=size)


def _moment(text: Any) -> datetime | None:
    try:
        return from_text(text)
    except (TypeError, ValueError):
        return None
