"""The member's veto, and the other reasons for which an assignment is not carried out. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from spes_api.kinds import TrainerAssignment

from spes_operator.member.manifests import job_name
from spes_operator.member.view import MemberView, Slot
from spes_operator.names import ObjectKey
from spes_operator.reasons import (
    NAME_CONFLICT,
    SLOT_NOT_OFFERED,
    VETOED_BY_MEMBER,
    WAITING_FOR_TOKEN,
)


class Refusal(NamedTuple):
    """Reason and sentence."""

    reason: str
    message: str


def key_of(assignment: TrainerAssignment) -> ObjectKey:
    """Where the assignment lies."""
    return ObjectKey(assignment.metadata.namespace, assignment.metadata.name)


def slot_of(seen: MemberView, assignment: TrainerAssignment) -> Slot | None:
    """The slot it is for, if the member offers it."""
    name = assignment.spec.slot
    return next((slot for slot in seen.inventory.slots if slot.name == name), None)


def refusal(seen: MemberView, assignment: TrainerAssignment) -> Refusal | None:
    """Why the assignment cannot be carried out now, or None."""
    return next(_refusals(seen, assignment), None)


def _refusals(seen: MemberView, assignment: TrainerAssignment) -> Iterator[Refusal]:
    spec, limits = assignment.spec, seen.limits
    if spec.template.image not in limits.images:
        allowed = ", ".join(sorted(limits.images - {""})) or "the agent's own"
        yield Refusal(
            VETOED_BY_MEMBER,
            f"image is not allowed here (got {spec.template.image!r}, allowed: {allowed})",
        )
    if missing := sorted(set(spec.template.datasets) - seen.inventory.datasets.keys()):
        yield Refusal(VETOED_BY_MEMBER, f"no dataset {', '.join(missing)} here")
    if slot_of(seen, assignment) is None:
        yield Refusal(SLOT_NOT_OFFERED, f"slot {spec.slot} is not offered")
    if limits.max_jobs is not None and _rank(seen, assignment) >= limits.max_jobs:
        yield Refusal(VETOED_BY_MEMBER, f"no more than {limits.max_jobs} trainers may run here")
    if job_name(assignment) in seen.conflicts:
        yield Refusal(
            NAME_CONFLICT,
            f"a Job {job_name(assignment)} exists that is not SPES's; it is left alone: rename it",
        )
    if key_of(assignment) not in seen.tokens:
        yield Refusal(WAITING_FOR_TOKEN, "the one-time token has not arrived yet")


def _rank(seen: MemberView, assignment: TrainerAssignment) -> int:
    """How many assignments go before this one: those that run already, then by name."""
    running = {job.assignment for job in seen.jobs}
    active = [item for item in seen.assignments if item.spec.desired != "Stop"]
    order = sorted(active, key=lambda item: (item.metadata.name not in running, item.metadata.name))
    return order.index(assignment)
