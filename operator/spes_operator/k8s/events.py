"""Events: what happened, in a sentence, for people; recorded beside what they are about."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from spes_api.schema_base import API_VERSION

from spes_operator.k8s.api import JsonObject, KubeApi

# Who reports, as Kubernetes wants it: a qualified name, and one of its processes.
_REPORTER = "spes.dev/spes-operator"
_REPORTER_INSTANCE = "spes-operator"
# Kubernetes' limit on an event's message.
MAX_MESSAGE_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened to one object."""

    reason: str
    message: str
    kind: str
    api_version: str = API_VERSION
    """Of the kind."""
    namespace: str
    name: str
    uid: str = ""
    time: datetime
    type: Literal["Normal", "Warning"] = "Normal"

    def to_json(self) -> JsonObject:
        """The Event object; it lies in the namespace of what it is about."""
        time = self.time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{self.name}.{uuid.uuid4().hex[:16]}",
                "namespace": self.namespace or "default",
            },
            "type": self.type,
            "reason": self.reason,
            "message": cut(self.message, MAX_MESSAGE_BYTES),
            "eventTime": time,  # exactly six digits, or an API server refuses it
            "action": self.reason,
            "reportingComponent": _REPORTER,
            "reportingInstance": _REPORTER_INSTANCE,
            "involvedObject": {  # all of it: `kubectl events --for` compares every field
                "apiVersion": self.api_version,
                "kind": self.kind,
                "namespace": self.namespace,
                "name": self.name,
                "uid": self.uid,
            },
        }


def cut(text: str, max_bytes: int) -> str:
    """The text in at most `max_bytes` of UTF-8, cut between characters, "..." where it was cut."""
    data = text.encode()
    if len(data) <= max_bytes:
        return text
    return data[: max_bytes - 3].decode(errors="ignore") + "..."


async def post(api: KubeApi, owner: str, event: Event) -> None:
    """Record the event."""
    await api.create(owner, event.to_json())
