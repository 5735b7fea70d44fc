"""What SpesJobs, members and pods say of themselves, and waiting for it."""

import time
from collections.abc import Callable

from spes_operator.k8s.api import JsonObject

_POLL_SECONDS = 1.0


def owners(job: JsonObject) -> set[str]:
    """Members that own experts, as the SpesJob says."""
    rows = job.get("status", {}).get("ownership", ())
    return {row["peer"].partition(".")[0] for row in rows if row["experts"]}


def is_covered(job: JsonObject) -> bool:
    """Every expert has an owner."""
    experts = job["status"]["experts"]
    return bool(experts["owned"] == experts["total"])


def round_of(job: JsonObject) -> int:
    """The last committed round; 0 before the first."""
    return int(job.get("status", {}).get("round", 0))


def is_ready(obj: JsonObject) -> bool:
    """Its condition Ready holds."""
    return condition(obj, "Ready") == "True"


def wait_until(holds: Callable[[], bool], told: Callable[[], str], *, seconds: float) -> None:
    """Poll until `holds()`, by whole seconds: each look starts a kubectl."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not in {seconds:.0f} s. {told()}"
        time.sleep(_POLL_SECONDS)


def condition(obj: JsonObject, kind: str) -> str:
    """Its status: True, False or Unknown; empty: it has none of that type."""
    return str(_condition(obj, kind).get("status", ""))


def reason(obj: JsonObject, kind: str) -> str:
    """Of a condition; empty: it has none of that type."""
    return str(_condition(obj, kind).get("reason", ""))


def message(obj: JsonObject, kind: str) -> str:
    """Of a condition; empty: it has none of that type."""
    return str(_condition(obj, kind).get("message", ""))


def _condition(obj: JsonObject, kind: str) -> JsonObject:
    conditions = obj.get("status", {}).get("conditions", ())
    return next((one for one in conditions if one["type"] == kind), {})
