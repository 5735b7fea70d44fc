"""The member's veto, and the other reasons for which an assignment is not carried out. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from spes_api.kinds import TrainerAssignment, TrainerTemplate

from spes_operator.member.manifests import job_name
from spes_operator.member.view import MemberLimits, MemberView, Refusal, Slot
from spes_operator.names import ObjectKey
from spes_operator.reasons import (
    SLOT_NOT_OFFERED,
    VETOED_BY_MEMBER,
    WAITING_FOR_TOKEN,
)


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
    slot = slot_of(seen, assignment)
    for text in _vetoes(spec.template, limits):
        yield Refusal(VETOED_BY_MEMBER, text)
    if missing := sorted(set(spec.template.datasets) - seen.inventory.datasets.keys()):
        yield Refusal(VETOED_BY_MEMBER, f"no dataset {', '.join(missing)} here")
    if slot is None:
        yield Refusal(SLOT_NOT_OFFERED, f"slot {spec.slot} is not offered")
    elif text := _too_many_devices(spec.template.resources, slot):
        yield Refusal(VETOED_BY_MEMBER, text)
    if limits.max_jobs is not None and _rank(seen, assignment) >= limits.max_jobs:
        yield Refusal(VETOED_BY_MEMBER, f"no more than {limits.max_jobs} trainers may run here")
    if (rejected := seen.rejected.get(job_name(assignment))) is not None:
        yield rejected
    if key_of(assignment) not in seen.tokens:
        yield Refusal(WAITING_FOR_TOKEN, "the one-time token has not arrived yet")


def _vetoes(template: TrainerTemplate, limits: MemberLimits) -> Iterator[str]:
    """What the template asks for beyond the allow-lists."""
    asked = (
        ("image", template.image, limits.images, "the agent's own"),
        ("priorityClassName", template.priority_class_name, limits.priority_classes, "none"),
        ("queueName", template.queue_name, limits.queues, "none"),
    )
    for field, value, allowed, default in asked:
        if value not in allowed and (value or field == "image"):
            names = ", ".join(sorted(allowed - {""})) or default
            yield f"{field} is not allowed here (got {value!r}, allowed: {names})"
    if keys := sorted(template.node_selector.keys() - limits.node_selector_keys):
        names = ", ".join(sorted(limits.node_selector_keys)) or "none"
        yield f"nodeSelector {', '.join(keys)} is not allowed here (allowed: {names})"


def _too_many_devices(asked: Mapping[str, str], slot: Slot) -> str:
    """Devices that the slot has, but not so many, in words."""
    for name, count in sorted(asked.items()):
        lent = slot.resources.get(name, "")
        if "/" in name and lent.isdecimal() and count.isdecimal() and int(count) > int(lent):
            return f"slot {slot.name} lends fewer {name} (got {count}, lent: {lent})"
    return ""


def _rank(seen: MemberView, assignment: TrainerAssignment) -> int:
    """How many trainers go before this one: those that run already, then by name."""
    running = {job.assignment for job in seen.jobs}

    def place(item: TrainerAssignment) -> tuple[bool, str]:
        return item.metadata.name not in running, item.metadata.name

    wanted = (item for item in seen.assignments if item.spec.desired != "Stop")
    return sum(place(item) < place(assignment) for item in wanted)
