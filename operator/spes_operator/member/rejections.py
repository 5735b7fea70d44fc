"""Jobs that the member's own cluster did not take, remembered for a while and then tried again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple

from spes_operator.clock import Clock
from spes_operator.errors import AlreadyExistsError, SpesError
from spes_operator.member.view import Refusal
from spes_operator.reasons import NAME_CONFLICT, POD_CREATION_FAILED, QUOTA_EXCEEDED

# An API server has no code of its own for a quota, only these words.
QUOTA_WORDS = "exceeded quota"
_MEMORY = timedelta(minutes=1)


class _Rejection(NamedTuple):
    refusal: Refusal
    met_at: float


class Rejections:
    """By name of the Job; bounded by the assignments there are within a minute."""

    def __init__(self, clock: Clock) -> None:
        """None yet."""
        self._clock = clock
        self._met: dict[str, _Rejection] = {}

    def note(self, job: str, error: SpesError) -> None:
        """The cluster answered the creation of `job` with `error`."""
        self._met[job] = _Rejection(_refusal(job, error), self._clock.monotonic())

    def recent(self) -> Mapping[str, Refusal]:
        """Those of the last minute."""
        since = self._clock.monotonic() - _MEMORY.total_seconds()
        self._met = {job: one for job, one in self._met.items() if one.met_at > since}
        return {job: one.refusal for job, one in self._met.items()}


def _refusal(job: str, error: SpesError) -> Refusal:
    if isinstance(error, AlreadyExistsError):
        text = f"a Job {job} exists that is not SPES's; it is left alone: rename it"
        return Refusal(NAME_CONFLICT, text)
    reason = QUOTA_EXCEEDED if QUOTA_WORDS in str(error) else POD_CREATION_FAILED
    return Refusal(reason, str(error))
