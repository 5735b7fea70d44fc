"""When a run counts as stuck: no deadline of the job's own parts may be that long. Pure."""

from __future__ import annotations

from datetime import timedelta

from spes_api.job import SpesJobSpec

# Starting processes and making the first version takes a while on a loaded machine.
_LEAST = timedelta(minutes=5)
_ROUNDS = 10


class Watchdog:
    """Watches one number that must grow: the last committed version."""

    def __init__(self, spec: SpesJobSpec) -> None:
        """Allow as much time as ten rounds may take at most."""
        self.limit = max(_LEAST, _ROUNDS * timedelta(seconds=spec.sync.timeout_seconds))
        self._version = -1
        self._since: float | None = None

    def is_stuck(self, version: int, *, now: float) -> bool:
        """Whether `version` has not grown for too long.

        Args:
            version: The last committed one; -1 before the first.
            now: Seconds of a clock that is never set back.
        """
        if self._since is None or version > self._version:
            self._version, self._since = version, now
        return now - self._since > self.limit.total_seconds()
