"""What a cluster runs for SPES, and the Protocols of whoever runs it.

A runner knows nothing of SPES: commands, environment, files of Secrets, a readiness file, SIGTERM
with a grace, exit codes and restarts. Plain data, no I/O.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import PurePath
from typing import Protocol

from spes_api.schema_base import BACKOFF_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPaths:
    """Where a workload finds its files: fixed in a pod, folders of the run on one machine."""

    work: PurePath
    """The volume that outlives a restart."""
    secrets: PurePath
    """Files of mounted Secrets."""
    data: PurePath
    """Dataset NAME is at data/NAME, read-only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretMount:
    """Each key of a Secret becomes a file of that name, mode 0600, in `directory`."""

    secret: str
    directory: PurePath


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProbe:
    """Ready while `path` was touched within `max_age`."""

    path: PurePath
    max_age: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRequest:
    """What a job asks of a cluster; a runner of processes passes it over."""

    image: str = ""
    """Empty: the runner's own."""
    resources: Mapping[str, str] = field(default_factory=dict)
    """Limits, and so requests."""
    datasets: tuple[str, ...] = ()
    """To mount read-only."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    priority_class: str = ""
    queue: str = ""
    """Of Kueue, which starts the job when its turn comes. Empty: it starts at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """How a job's process is; written by the runner."""

    active: bool = False
    """A process runs or will be started again."""
    ready: bool = False
    restarts: int = 0
    exit_code: int | None = None
    """Of the last process that ended; None: none ended yet."""
    reason: str = ""
    """Why it ended ("Completed", "Failed", "BackoffLimitExceeded"), or why it waits."""
    message: str = ""
    disrupted: bool = False
    """The last pod was preempted or lost its node, and its replacement is not ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalJob:
    """One trainer as a member runs it: the part that batch/v1 Jobs and processes share.

    Created once and deleted, never changed. After an exit the process is started again, unless it
    exited 0 (Completed) or with one of `fail_exit_codes` (Failed). An exit that is not one of
    `ignore_exit_codes` counts as a restart; more than `backoff_limit` of them end the job
    (BackoffLimitExceeded).
    """

    name: str
    job_uid: str
    assignment: str
    """Name of the TrainerAssignment it was made from."""
    slot: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    secret_mounts: tuple[SecretMount, ...] = ()
    ready_probe: FileProbe | None = None
    backoff_limit: int = BACKOFF_LIMIT
    ignore_exit_codes: tuple[int, ...] = ()
    fail_exit_codes: tuple[int, ...] = ()
    grace: timedelta
    """From SIGTERM to SIGKILL."""
    suspend: bool = False
    pod: PodRequest = PodRequest()
    status: JobStatus = JobStatus()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Delete a job: SIGTERM to its process, SIGKILL after `grace`, then it is no longer listed."""

    name: str
    grace: timedelta


class JobBackend(Protocol):
    """A member's own cluster, as far as jobs go."""

    async def jobs(self) -> tuple[LocalJob, ...]:
        """Every job made by `create` that is not gone yet, with its status now.

        Gone: its process too, so that its slot is free.
        """

    async def create(self, job: LocalJob) -> None:
        """Start it.

        Raises:
            AlreadyExistsError: A job of that name is there.
        """

    async def stop(self, stop: Stop) -> None:
        """Begin to stop and delete; returns at once. A job that is gone is no error."""

    def changes(self) -> AsyncIterator[None]:
        """Yields whenever a job's status may have changed; several changes may come as one."""


class SecretBackend(Protocol):
    """A member's own cluster, as far as Secrets go."""

    async def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """Name -> annotations of every Secret made by `put_secret`; the contents stay inside."""

    async def put_secret(
        self, name: str, data: Mapping[str, bytes], annotations: Mapping[str, str]
    ) -> None:
        """Create or replace it; files of jobs that mount it follow."""

    async def delete_secret(self, name: str) -> None:
        """Remove it; one that is gone is no error."""


class MemberBackend(JobBackend, SecretBackend, Protocol):
    """All that a member's controller asks of its own cluster."""
