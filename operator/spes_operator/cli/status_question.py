"""What `spes status` is asked for, and its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from spes_operator.cli.status_objects import read_all, read_deleted, read_job
from spes_operator.cli.status_view import deleted_view, job_view, status_view
from spes_operator.display.status_view import DeletedView, JobView, StatusView
from spes_operator.k8s.api import KubeApi
from spes_operator.names import ObjectKey

View: TypeAlias = StatusView | JobView | DeletedView


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked for."""

    job: str = ""
    """Empty: all jobs and members."""
    namespace: str = ""
    """Empty: of all namespaces."""
    deleted: bool = False

    async def answer(self, api: KubeApi) -> View:
        """Read it.

        Raises:
            ConfigError: There is no such job, or this is no hub.
        """
        if self.deleted:
            return deleted_view(await read_deleted(api, self.namespace))
        if self.job:
            return job_view(await read_job(api, ObjectKey(self.namespace, self.job)))
        return status_view(await read_all(api, self.namespace))
