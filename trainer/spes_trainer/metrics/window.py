"""The steps since a person was last told: what a line in the log says about them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from spes_trainer.metrics.experts import ExpertLoad
from spes_trainer.metrics.record import StepRecord

logger = logging.getLogger(__name__)

# From one line of a peer to the next.
LINE_SECONDS = 30.0
_MIB = 2**20
# Dead experts that a line names; more are counted.
_NAMED = 4


class Window:
    """Means over steps; it holds no more after many than after one."""

    def __init__(self) -> None:
        """Start without a step."""
        self._last: StepRecord | None = None
        self._routed: NDArray[np.int64] | None = None
        self.num_steps = self._tokens = 0
        self._seconds = self._loss = self._utilised_seconds = 0.0

    def add(self, record: StepRecord) -> None:
        """One more step."""
        routed = record.outcome.routed
        self._last = record
        self._routed = routed if self._routed is None else self._routed + routed
        self.num_steps += 1
        self._tokens += record.outcome.tokens
        self._seconds += record.place.seconds
        self._loss += record.outcome.loss
        self._utilised_seconds += (record.mfu or 0.0) * record.place.seconds

    def describe(self) -> str:
        """Say how training goes; empty without a step.

        Loss, rate, MFU and use of the experts are of all steps, the rest is of the last one.
        """
        last = self._last
        if last is None:
            return ""
        load = self.load()
        known = {
            "step": str(last.place.step),
            "round": str(last.place.round),
            "loss": f"{self._loss / self.num_steps:.4f}",
            "tokens_per_second": f"{self._tokens / self._seconds:.0f}",
            "mfu": last.mfu and f"{self._utilised_seconds / self._seconds:.3f}",
            "gradient_norm": f"{last.outcome.gradient_norm:.3g}",
            "learning_rate": f"{last.place.learning_rate:.3g}",
            "peak_mib": last.outcome.peak_bytes and str(last.outcome.peak_bytes // _MIB),
            "experts_used": f"{load.utilisation:.2f}",
            "dead_experts": _named(load.dead),
        }
        return " ".join(f"{name}={value}" for name, value in known.items() if value)

    def load(self) -> ExpertLoad:
        """How the experts were used; of one step at least."""
        assert self._routed is not None, "a window without a step"
        return ExpertLoad.of(self._routed)


def _named(dead: Sequence[str]) -> str:
    more = len(dead) - _NAMED
    names = [*dead[:_NAMED], *([f"{more} more"] if more > 0 else [])]
    return ",".join(names) or "none"


class PeriodicLine:
    """Logs the first step, then a line about all steps since the last one, and what is left."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds from any start."""
        self._clock = clock
        self._window = Window()
        self._due = clock()

    def add(self, record: StepRecord) -> None:
        """One more step."""
        self._window.add(record)
        if self._clock() >= self._due:
            self.close()

    def close(self) -> None:
        """Log the steps since the last line, if there are any."""
        if said := self._window.describe():
            logger.info("training %s", said)
        self._window = Window()
        self._due = self._clock() + LINE_SECONDS
