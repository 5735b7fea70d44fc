"""What is wrong with what a run's data hold: too little text, nothing held out, a wrong tokenizer.

The trainer alone can tell, so it is asked before anything is started or written.
"""

from __future__ import annotations

import logging
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from spes_api.exit_codes import DONE, UNUSABLE
from spes_api.job import SpesJob

from spes_operator.local.machine import TRAINER, Machine
from spes_operator.local.preflight import num_source_bytes
from spes_operator.local.rundir import write_model

logger = logging.getLogger(__name__)

# Of data beyond this nobody waits for a second reading; hardly ever do they hold too little.
MAX_BYTES = 256_000_000
# For so much data, on a machine that is busy with other things.
_LIMIT = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainersLook:
    """Has `spes-trainer look` read the data."""

    machine: Machine

    def __call__(self, job: SpesJob, datasets: Mapping[str, Path]) -> list[str]:
        """The trainer's own sentences; none if the data are fine or large."""
        if num_source_bytes(job, datasets) > MAX_BYTES:
            return []
        with tempfile.TemporaryDirectory(prefix="spes-look-") as place:
            return self._look(job, datasets, Path(place))

    def _look(self, job: SpesJob, datasets: Mapping[str, Path], place: Path) -> list[str]:
        root, recipe = place / "data", place / "job.yaml"
        root.mkdir()
        for name, path in datasets.items():
            (root / name).symlink_to(path)
        write_model(recipe, job)
        try:
            done = subprocess.run(  # noqa: S603 - a program of ours
                [TRAINER, "look", str(recipe), "--data-root", str(root)],
                env=self.machine.with_threads(1),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                errors="replace",
                timeout=_LIMIT.total_seconds(),
            )
        except subprocess.TimeoutExpired:
            logger.warning("data not looked at: it took longer than %d s", _LIMIT.total_seconds())
            return []
        lines = [line.removeprefix(f"{TRAINER} look: ") for line in done.stderr.splitlines()]
        if done.returncode not in (DONE, UNUSABLE):
            logger.warning("data not looked at: %s ended with %d", TRAINER, done.returncode)
            logger.debug("%s", done.stderr)
        if done.returncode != UNUSABLE:
            return []
        return [_where_the_user_has_it(line, root, datasets) for line in lines]


def _where_the_user_has_it(line: str, root: Path, datasets: Mapping[str, Path]) -> str:
    """A sentence with the paths of the user instead of the links to them."""
    for name, path in datasets.items():
        line = line.replace(str(root / name), str(path))
    return line
