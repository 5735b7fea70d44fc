"""How fast a peer trains: what its heartbeats say, and what its checkpoints count."""

from __future__ import annotations

import logging

from spes_proto.v1 import sync_pb2

from spes_sync.client.learner import StepResult
from spes_sync.client.work import Work

logger = logging.getLogger(__name__)

# Weight of the newest step in the running rate once there are enough of them: about the last fifty
# steps count. Experts are placed by it, so it must not follow every moment that other processes on
# the machine leave free or take.
_NEWEST = 0.02
# A step counts as at most so many usual ones. A machine that was frozen for a minute is no slower
# than before; taken at its word it would get no experts when it comes back.
_LONGEST_STEP = 5.0


class Pace:
    """Counts steps and tokens of this peer and smooths its rate."""

    def __init__(self, every_seconds: float | None, *, steps: int = 0, tokens: int = 0) -> None:
        """Go on from a checkpoint's counts; `every_seconds` is a round's training time, if any."""
        self.steps = steps
        self.tokens = tokens
        self._every_seconds = every_seconds
        self._seconds_per_token = 0.0
        self._rated_steps = 0
        self._step_seconds = 0.0
        self._loss = 0.0
        self._peak_bytes = 0
        self._warned = False

    def stepped(self, result: StepResult, seconds: float) -> None:
        """One more optimizer step took so long."""
        self.steps += 1
        self.tokens += result.tokens
        self._rated_steps += 1
        weight = max(_NEWEST, 1 / self._rated_steps)  # of the first steps: their mean
        newest = max(seconds, 1e-9) / result.tokens
        if self._rated_steps > 1:
            newest = min(newest, _LONGEST_STEP * self._seconds_per_token)
        self._seconds_per_token += weight * (newest - self._seconds_per_token)
        self._step_seconds = seconds
        self._loss = result.loss
        self._peak_bytes = max(self._peak_bytes, result.peak_bytes)

    def round_seconds(self, work: Work) -> float:
        """How long a round's training takes: as told, or as long as this work does."""
        return self._every_seconds or self._seconds_per_token * work.tokens

    def check_round(self, work: Work) -> None:
        """Warn once if a round's time is shorter than one step."""
        limit = self._every_seconds
        if limit is None or self._warned or work.steps != 1 or self._step_seconds <= limit:
            return
        self._warned = True
        logger.warning(
            "sync.everySeconds is shorter than one step (got %.1f s, a step took %.1f s); "
            "each round does one step, raise everySeconds",
            limit,
            self._step_seconds,
        )

    def heartbeat(self, version: int, work: Work) -> sync_pb2.Heartbeat:
        """What to tell the server now."""
        return sync_pb2.Heartbeat(
            version=version,
            steps=work.steps,
            tokens=work.tokens,
            tokens_per_second=1 / self._seconds_per_token if self._rated_steps else 0.0,
            loss=self._loss,
            peak_bytes=self._peak_bytes,
        )
