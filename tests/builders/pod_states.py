"""Jobs, pods and Events as an API server shows them, in the states that matter to a member."""

from typing import Any

NAMESPACE = "spes"


def make_job_object(
    name: str = "j", *, suspend: bool = False, failed: int = 0, **conditions: str
) -> dict[str, Any]:
    """A Job; `conditions` are the types of those that are True, with their reasons."""
    return {
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}"},
        "spec": {"suspend": suspend},
        "status": {
            "failed": failed,
            "conditions": [
                {"type": kind, "status": "True", "reason": reason, "message": f"{reason} it is"}
                for kind, reason in conditions.items()
            ],
        },
    }


def make_pod(
    name: str = "p-0", *, phase: str = "Pending", state: Any = None, **conditions: str
) -> dict[str, Any]:
    """A trainer's pod; `conditions` are True, or False where the reason begins with "!"."""
    return {
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": "n1"},
        "status": {
            "phase": phase,
            "containerStatuses": [{"name": "trainer", "state": state or {}}],
            "conditions": [
                {
                    "type": kind,
                    "status": "False" if reason.startswith("!") else "True",
                    "reason": reason.removeprefix("!"),
                    "message": "so it is",
                }
                for kind, reason in conditions.items()
            ],
        },
    }


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    """State of a container that waits."""
    return {"waiting": {"reason": reason, "message": message}}


def terminated(code: int, message: str = "") -> dict[str, Any]:
    """State of a container that ended."""
    return {"terminated": {"exitCode": code, "message": message}}


def failed_create(message: str, *, at: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    """The Job controller's Event about a pod that was not admitted."""
    return {"reason": "FailedCreate", "message": message, "lastTimestamp": at}
