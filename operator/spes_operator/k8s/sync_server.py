"""SyncServer: the workload of one job's sync server, as the hub writes it and a runner plays it.

An object of its own (`local.spes.dev/v1`), because a runner of processes needs less than a
StatefulSet with its Service says, and more: where the server really listens. The runner writes
status; the hub writes the rest.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from spes_api.schema_base import Metadata

from spes_operator.k8s.api import JsonObject


class _Model(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, frozen=True, populate_by_name=True, extra="forbid"
    )


class WorkloadMetadata(Metadata):
    """As Metadata, with the longer names that derived objects have."""

    name: Annotated[str, Field(min_length=1, max_length=63)]


class SyncServerSpec(_Model):
    """What to run."""

    command: tuple[str, ...]
    directory: str
    """The server's volume, kept when the object is deleted; it writes `ready.json` there."""
    tls_secret: str
    """Secret of the same namespace; its keys become files in `tlsDirectory`."""
    tls_directory: str
    grace_seconds: int


class SyncServerStatus(_Model):
    """Where it listens, or did last: every exit is followed by a restart, there if possible."""

    ready: bool = False
    endpoint: str = ""
    """host:port for peers."""
    control_endpoint: str = ""
    """host:port for the hub."""
    restarts: int = 0
    message: str = ""
    """Why it is not ready, for example the last line of its log."""


class SyncServer(_Model):
    """The object."""

    api_version: Literal["local.spes.dev/v1"] = "local.spes.dev/v1"
    kind: Literal["SyncServer"] = "SyncServer"
    metadata: WorkloadMetadata
    spec: SyncServerSpec
    status: SyncServerStatus = SyncServerStatus()

    def says_the_same(self, other: SyncServer) -> bool:
        """Nothing that the hub writes differs."""
        return self.spec == other.spec and self.metadata.labels == other.metadata.labels

    def to_json(self) -> JsonObject:
        """The object without its status, as the hub applies it."""
        return self.model_dump(
            by_alias=True, mode="json", exclude={"status"}, exclude_defaults=False
        )
