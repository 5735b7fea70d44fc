"""TensorBoard event files, with one event per step; in long runs of fewer steps.

An event file can only be appended to, so steps are left out by their distance from the beginning,
where `history` leaves out by age.
"""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path
from typing import Any

from spes_trainer.metrics.record import StepRecord
from spes_trainer.metrics.thinning import stride

logger = logging.getLogger(__name__)

FOLDER = "tensorboard"
# Seconds until an event is in the file.
_FLUSH_SECONDS = 30
# Experts that have a curve of their own; of larger models the summaries must do.
_MAX_CURVES = 64
# TensorBoard shows one section for each first part.
_TAGS = {
    "loss": "loss/cross_entropy",
    "zLoss": "loss/z",
    "loadBalance": "loss/load_balance",
    "routerZLoss": "loss/router_z",
    "gradientNorm": "optimizer/gradient_norm",
    "learningRate": "optimizer/learning_rate",
    "tokensPerSecond": "speed/tokens_per_second",
    "mfu": "speed/mfu",
    "peakMemoryBytes": "memory/peak_bytes",
    "expertUtilisation": "experts/utilisation",
    "expertHighestLoad": "experts/highest_load",
}


class Board:
    """The event files of one directory; nothing is written without the package `tensorboard`."""

    def __init__(self, directory: Path) -> None:
        """Look whether it is installed."""
        self._folder = directory / FOLDER
        self._installed = importlib.util.find_spec("tensorboard") is not None
        self._writer: Any = None  # torch leaves it untyped
        if not self._installed:
            logger.info("no event files: tensorboard is not installed; it is part of spes[trainer]")

    def add(self, record: StepRecord) -> None:
        """Write a step if it is one of those that are kept."""
        step = record.place.step
        if not self._installed or step % stride(step):
            return
        if self._writer is None:
            self._writer = self._open(step)
        self._writer.file_writer.add_summary(_summary(record), step)

    def close(self) -> None:
        """Write what waits."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self, first_step: int) -> Any:
        from torch.utils.tensorboard import SummaryWriter  # takes a third of a second to import

        # TensorBoard then hides what an earlier process has written of this step and later ones.
        return SummaryWriter(str(self._folder), purge_step=first_step, flush_secs=_FLUSH_SECONDS)


def _summary(record: StepRecord) -> Any:
    """All curves in one event: an event for each takes seven times as long."""
    from tensorboard.compat.proto.summary_pb2 import (  # type: ignore[import-untyped]  # no stubs
        Summary,
    )

    values = {_TAGS[name]: value for name, value in record.scalars().items()}
    values["experts/dead"] = len(record.load.dead)
    if len(record.load.shares) <= _MAX_CURVES:
        values |= {f"expert_load/{e}": share for e, share in enumerate(record.load.shares)}
    return Summary(value=[Summary.Value(tag=t, simple_value=v) for t, v in values.items()])
