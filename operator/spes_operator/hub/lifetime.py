"""How long a job may train, and how long it stays once it has finished. Pure.

The time of training is kept in the job's status, so that neither a restart of the hub nor a
suspension begins it anew; hence it is measured by the hub's wall clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from spes_api.job import SpesJobSpec, SpesJobStatus
from spes_api.schema_base import Condition

from spes_operator.clock import from_text, to_text
from spes_operator.reasons import COMPLETE, FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """For how long a job has trained."""

    counted: timedelta = timedelta()
    """Up to its last halt."""
    since: datetime | None = None
    """Since when more is counted; None: nothing is counted now."""

    @classmethod
    def of(cls, status: SpesJobStatus) -> Self:
        """As it was written."""
        since = from_text(status.active_since) if status.active_since else None
        return cls(counted=timedelta(seconds=status.active_seconds), since=since)

    @property
    def since_text(self) -> str:
        """As it is written."""
        return to_text(self.since) if self.since else ""

    def lasted(self, now: datetime) -> timedelta:
        """All in all."""
        return self.counted + (max(timedelta(), now - self.since) if self.since else timedelta())

    def next(self, spec: SpesJobSpec, *, trains: bool, now: datetime) -> Activity:
        """As it should be written: counting begins, goes on, or ends.

        Args:
            spec: With the deadline.
            trains: The job has begun, and has neither finished nor been suspended.
            now: Time of the pass.
        """
        limit, lasted = _deadline(spec), self.lasted(now)
        if not trains or (limit is not None and lasted >= limit):
            return Activity(counted=lasted)
        return self if self.since else Activity(counted=self.counted, since=now)

    def exceeds(self, spec: SpesJobSpec) -> bool:
        """Counting has ended at the job's deadline."""
        limit = _deadline(spec)
        return self.since is None and limit is not None and self.counted >= limit

    def ends_in(self, spec: SpesJobSpec, now: datetime) -> timedelta | None:
        """Until the deadline; None: there is none, or nothing is counted."""
        limit = _deadline(spec)
        return None if limit is None or self.since is None else limit - self.lasted(now)


def _deadline(spec: SpesJobSpec) -> timedelta | None:
    seconds = spec.active_deadline_seconds
    return None if seconds is None else timedelta(seconds=seconds)


def expiry(spec: SpesJobSpec, conditions: Iterable[Condition]) -> datetime | None:
    """When the job is to be deleted; None: it has not finished, or it stays."""
    ended = [
        from_text(item.last_transition_time)
        for item in conditions
        if item.type in (COMPLETE, FAILED) and item.status == "True"
    ]
    if spec.ttl_seconds_after_finished is None or not ended:
        return None
    return min(ended) + timedelta(seconds=spec.ttl_seconds_after_finished)
