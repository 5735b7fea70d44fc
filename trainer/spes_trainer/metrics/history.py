"""`metrics.jsonl`: one line of JSON per optimizer step, in their order, thinned with age.

A step is in it at most once. A process that goes on from a checkpoint does some steps again: their
lines, and one that a kill has cut short, are dropped before the first new one is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from spes_sync.disk import Disk, reports_full

from spes_trainer.metrics.record import StepRecord
from spes_trainer.metrics.thinning import WHOLE, kept

FILE = "metrics.jsonl"


class History:
    """The file of one directory. It is open only while a step is appended."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        """Look at nothing yet."""
        self._path = directory / FILE
        self._disk = disk
        self._until_thinned = 0

    def add(self, record: StepRecord) -> None:
        """Append a step; readers see it at once.

        Raises:
            DiskFullError: there is no room for it.
        """
        if not self._until_thinned:
            self._thin(record.place.step)
            self._until_thinned = WHOLE
        line = json.dumps(record.to_json()) + "\n"
        with reports_full(self._path, len(line)), self._path.open("a", encoding="utf-8") as file:
            file.write(line)
        self._until_thinned -= 1

    def _thin(self, next_step: int) -> None:
        """Keep what belongs before a step."""
        if not self._path.exists():
            return
        found = self._path.read_bytes()
        lines = (
            line
            for step, line in _steps(found)
            if step < next_step and kept(step, newest=next_step)
        )
        left = b"".join(lines)
        if left != found:
            self._disk.write(self._path, left, "training log thinned")


def _steps(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines with their steps."""
    for line in content.splitlines(keepends=True):
        try:
            step = json.loads(line)["step"]
        except (ValueError, TypeError, KeyError):
            continue
        if isinstance(step, int) and line.endswith(b"\n"):
            yield step, line
