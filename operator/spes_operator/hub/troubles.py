"""What a person must mend, told on the SpesJob itself, where the pass cannot reach its own end.

A pass that ends well derives every condition anew, so nothing told here outlives its cause.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from spes_operator.clock import Clock, to_text
from spes_operator.errors import (
    ConfigError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    RefusedError,
    SpesError,
)
from spes_operator.k8s.api import JsonObject, KubeApi
from spes_operator.k8s.events import MAX_MESSAGE_BYTES, cut
from spes_operator.names import ObjectKey
from spes_operator.reasons import (
    DEGRADED,
    HUB_FORBIDDEN,
    INVALID_SPEC,
    OWNERSHIP_DAMAGED,
    PLAN_REFUSED,
    READY,
    VALIDATED,
    WRITE_REFUSED,
)


class Trouble(NamedTuple):
    """Reason and sentence."""

    reason: str
    message: str


_REASONS: tuple[tuple[type[SpesError], str], ...] = (
    (RefusedError, PLAN_REFUSED),
    (ConfigError, OWNERSHIP_DAMAGED),
    (ForbiddenError, HUB_FORBIDDEN),
    (InvalidError, WRITE_REFUSED),
    (ConflictError, WRITE_REFUSED),
)


def trouble_of(error: SpesError) -> Trouble:
    """How the error is told to people; it says itself what to do."""
    return Trouble(next(name for kind, name in _REASONS if isinstance(error, kind)), str(error))


def outside(job: ObjectKey, namespaces: Collection[str]) -> str | None:
    """Why a job is not carried out where it is; None: it is."""
    if "" in namespaces or job.namespace in namespaces:
        return None
    served = ", ".join(sorted(namespaces))
    return (
        f"this hub carries out no jobs in namespace {job.namespace} (expected one of {served}); "
        "add it to the chart's jobNamespaces, or create the job elsewhere"
    )


async def write_invalid(api: KubeApi, obj: JsonObject, problem: str, clock: Clock) -> None:
    """The job's spec cannot be used."""
    trouble = Trouble(INVALID_SPEC, problem)
    await _write(api, obj, {VALIDATED: "False", READY: "False"}, trouble, clock)


async def write_trouble(api: KubeApi, obj: JsonObject, trouble: Trouble, clock: Clock) -> None:
    """The job cannot be led on until a person mends something; its trainers may still work."""
    await _write(api, obj, {READY: "False", DEGRADED: "True"}, trouble, clock)


async def _write(
    api: KubeApi, obj: JsonObject, told: dict[str, str], trouble: Trouble, clock: Clock
) -> None:
    """Set these conditions; the rest of the status stays."""
    metadata, status = obj["metadata"], obj.get("status", {})
    present = {one["type"]: one for one in status.get("conditions", ())}
    for kind, value in told.items():
        wanted = {
            "type": kind,
            "status": value,
            "reason": trouble.reason,
            "message": cut(trouble.message, MAX_MESSAGE_BYTES),
            "observedGeneration": metadata["generation"],
        }
        before = present.get(kind, {})
        if {key: before.get(key) for key in wanted} != wanted:
            present[kind] = wanted | {"lastTransitionTime": to_text(clock.now())}
    document = status | {"conditions": list(present.values())}
    if document != status:
        name, uid = metadata["name"], metadata["uid"]
        await api.patch_status("SpesJob", metadata["namespace"], name, document, uid=uid)
