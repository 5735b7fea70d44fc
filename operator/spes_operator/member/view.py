"""MemberView and MemberPlan: all that a pass over one member sees, and all that it wants done.

Plain data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from spes_api.kinds import (
    CredentialReport,
    MemberReportStatus,
    QuotaReport,
    TrainerAssignment,
    TrainerAssignmentStatus,
)

from spes_operator.k8s.events import Event
from spes_operator.k8s.workloads import LocalJob, Stop, WorkloadPaths
from spes_operator.names import LABEL_GPU_MEMORY, LABEL_GPU_PRODUCT, ObjectKey

# Labels by which jobs may choose nodes, if a member's admin names no others.
GPU_LABELS = (LABEL_GPU_PRODUCT, LABEL_GPU_MEMORY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One place for a trainer, as the member's admin declares it."""

    name: str
    memory_bytes: int
    activation_bytes: int | None = None
    resources: Mapping[str, str] = field(default_factory=dict)
    """What its pod asks Kubernetes for."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Of nodes that are such a place."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Of the trainer in this slot, for example its number of threads."""
    slowdown: float = 1.0
    """Multiplies the time of a step, by sleeping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What the member lends now; a slot that is not listed is not offered."""

    cluster_id: str
    version: str
    slots: tuple[Slot, ...]
    datasets: Mapping[str, str] = field(default_factory=dict)
    """Name -> hash of the manifest."""
    kubernetes_version: str = ""
    quotas: tuple[QuotaReport, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLimits:
    """The member's veto: what no hub can make it run."""

    images: frozenset[str] = frozenset({""})
    """Allowed images; "" is the one that came with the agent."""
    priority_classes: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    node_selector_keys: frozenset[str] = frozenset(GPU_LABELS)
    """Labels by which a job may choose nodes."""
    max_jobs: int | None = None
    """Trainers at a time; None: one per slot."""
    orphan_after: timedelta = timedelta(minutes=30)
    """A trainer without hub and without Session is stopped after that."""


class Refusal(NamedTuple):
    """Why an assignment is not carried out: reason and sentence."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """One member and all that decides about it."""

    member: str
    assignments: tuple[TrainerAssignment, ...]
    jobs: tuple[LocalJob, ...]
    tokens: frozenset[ObjectKey]
    """Assignments whose join Secret is here."""
    limits: MemberLimits
    inventory: Inventory
    paths: Callable[[str], WorkloadPaths]
    """Slot -> where its trainer finds its files."""
    assignments_known: bool = True
    """The hub was read since the agent started; else no assignment means nothing."""
    unreadable: frozenset[str] = frozenset()
    """Names of assignments that this release does not understand."""
    hub_silent_for: timedelta = timedelta()
    rejected: Mapping[str, Refusal] = field(default_factory=dict)
    """Name of a Job -> why the member's own cluster did not take it a moment ago."""
    credential: CredentialReport | None = None
    """Of the connection to the hub."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlan:
    """What to do; a Job is created once and deleted, never changed."""

    create: tuple[LocalJob, ...]
    stop: tuple[Stop, ...]
    statuses: Mapping[ObjectKey, TrainerAssignmentStatus]
    report: MemberReportStatus
    events: tuple[Event, ...]
    again_in: timedelta
