"""Writes what every optimizer step has shown: to `metrics.jsonl` and to TensorBoard event files.

Called by rank 0 alone, after each step, from what the step has computed anyway. A log that cannot
be written never ends training.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime

import torch
from spes_api.job import SpesJobSpec

from spes_trainer.errors import DiskFullError
from spes_trainer.metrics.board import Board
from spes_trainer.metrics.experts import ExpertLoad
from spes_trainer.metrics.flops import device_peak, step_flops
from spes_trainer.metrics.history import History
from spes_trainer.metrics.profiling import Profiling
from spes_trainer.metrics.record import Place, StepRecord
from spes_trainer.share import Workplace
from spes_trainer.step import StepOutcome, Stepper

logger = logging.getLogger(__name__)


def _now() -> datetime:
    return datetime.now(tz=UTC)


def peak_of(stepper: Stepper) -> float | None:
    """What the GPUs of a trainer do at most, in floating-point operations per second.

    None on a CPU, and for a GPU whose peak is not known.
    """
    compute = stepper.compute
    if compute.device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(compute.device)
    peak = device_peak(name, bfloat16=compute.bfloat16)
    if peak is None:
        logger.info("no MFU: the peak of this GPU is not known device=%s", name)
        return None
    return stepper.ranks.size * peak


class TrainingLog:
    """Of one trainer."""

    def __init__(
        self,
        spec: SpesJobSpec,
        workplace: Workplace,
        *,
        peak: float | None,
        say: Callable[[str], None] = logger.info,
        now: Callable[[], datetime] = _now,
    ) -> None:
        """Write nothing before the first step.

        Args:
            spec: Of the job.
            workplace: Of rank 0.
            peak: Of the trainer's GPUs, see `peak_of`.
            say: Told where a profile is.
            now: The time of day, for people.
        """
        self._config = spec.model.resolve()
        self._sequence_tokens = spec.data.sequence_tokens
        self._peak = peak
        self._now = now
        self._history = History(workplace.directory, workplace.disk)
        self._board = Board(workplace.directory)
        self._writable = True
        self._profiling = Profiling(workplace.directory, workplace.profile_steps, say)

    def profiled(self) -> AbstractContextManager[None]:
        """Surround a step, so that it can be part of a profile."""
        return self._profiling.step()

    def write(self, place: Place, outcome: StepOutcome) -> StepRecord:
        """Log a step."""
        record = StepRecord(
            time=self._now(),
            place=place,
            outcome=outcome,
            load=ExpertLoad.of(outcome.routed),
            mfu=self._mfu(place, outcome),
        )
        if self._writable:
            with self._going_on():
                self._history.add(record)
                self._board.add(record)
        return record

    def close(self) -> None:
        """Finish the files."""
        with self._going_on():
            self._profiling.close()
            self._board.close()

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """Leave the files alone after the first that cannot be written."""
        try:
            yield
        except (OSError, DiskFullError):
            self._writable = False
            logger.exception("the training log cannot be written; training goes on without it")

    def _mfu(self, place: Place, outcome: StepOutcome) -> float | None:
        if self._peak is None:
            return None
        needed = step_flops(self._config, outcome, sequence_tokens=self._sequence_tokens)
        return needed / (place.seconds * self._peak)
