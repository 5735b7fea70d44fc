"""Checkpoints: atomic, verified, exactly resumable.

    DIR/latest                    name of the last complete one; its rename is the commit point
    DIR/checkpoints/NAME/
        rank-0.safetensors        weights
        rank-0.optim.safetensors  exp_avg, exp_avg_sq, step and ramp per trained tensor
        rank-0.rng.safetensors    state of torch's random number generator
        state.json                where the run stands
        files.json                SHA-256 and size of each file, written last

A kill at any moment leaves `latest` at a complete checkpoint. A directory whose files differ from
its files.json is skipped with a warning and the one before is used. Nothing here can read pickle.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from spes_sync.disk import Disk, reports_full
from torch import Tensor

from spes_trainer.errors import CheckpointError, DiskFullError

logger = logging.getLogger(__name__)

_WEIGHTS = "rank-0.safetensors"
_OPTIMIZER = "rank-0.optim.safetensors"
_RNG = "rank-0.rng.safetensors"
_STATE = "state.json"
_FILES = "files.json"
_LATEST = "latest"

# The moments of a save that `Disk.reached` is told of, in their order.
CRASH_POINTS = (
    "checkpoint folder made",
    "checkpoint weights written",
    "checkpoint optimizer written",
    "checkpoint rng written",
    "checkpoint state written",
    "checkpoint files listed",
    "checkpoint is the latest",
    "old checkpoint no longer listed",
    "old checkpoint removed",
)
# Errors of the operating system that mean a full disk, as safetensors spells them.
_FULL = tuple(f"os error {number}" for number in (errno.ENOSPC, errno.EDQUOT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that a run needs to go on as if it had never stopped."""

    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    rng: Mapping[str, Tensor]
    state: Mapping[str, object]
    """Plain JSON."""


class CheckpointStore:
    """The checkpoints of one directory."""

    def __init__(self, directory: Path, *, keep_last: int, disk: Disk) -> None:
        """Look at nothing yet.

        Args:
            directory: The trainer's own, held by this process.
            keep_last: Complete checkpoints that are kept.
            disk: How files are written; its `reached` is told each of CRASH_POINTS.
        """
        self._directory = directory
        self._folder = directory / "checkpoints"
        self._keep_last = keep_last
        self._disk = disk

    def save(self, name: str, snapshot: Snapshot) -> None:
        """Write a checkpoint, then make it the latest, then remove old ones.

        Args:
            name: Ends in a number that grows, for example `round-000017`.
            snapshot: What to write.

        Raises:
            DiskFullError: nothing changed; what was written is removed again.
        """
        folder = self._folder / name
        shutil.rmtree(folder, ignore_errors=True)  # of a save that was cut short
        try:
            with reports_full(folder, 0):
                folder.mkdir(parents=True)
            self._disk.reached("checkpoint folder made")
            self._write_files(folder, snapshot)
        except DiskFullError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._disk.sync_directory(self._folder)
        self._disk.write(self._directory / _LATEST, name.encode(), "checkpoint is the latest")
        self._remove_old(name)

    def load(self) -> Snapshot | None:
        """Return the latest complete checkpoint, None if there never was one.

        Raises:
            CheckpointError: there are checkpoints, and none is complete.
        """
        latest = self._latest()
        names = self._names()
        candidates = [name for name in names if latest is None or _number(name) <= _number(latest)]
        for name in reversed(candidates):
            try:
                return _read(self._folder / name)
            except CheckpointError as error:
                logger.warning("checkpoint skipped, trying the one before: %s", error)
        if latest is not None:
            raise CheckpointError(
                f"{self._folder} has no complete checkpoint (got {len(names)} damaged, expected "
                f"{latest}); restore it, or choose another --dir to start again"
            )
        return None

    def _write_files(self, folder: Path, snapshot: Snapshot) -> None:
        for file, tensors, point in (
            (_WEIGHTS, snapshot.weights, "checkpoint weights written"),
            (_OPTIMIZER, snapshot.optimizer, "checkpoint optimizer written"),
            (_RNG, snapshot.rng, "checkpoint rng written"),
        ):
            self._write_tensors(folder / file, tensors)
            self._disk.reached(point)
        self._disk.write_json(folder / _STATE, snapshot.state, "checkpoint state written")
        listed = {
            file: {"bytes": (folder / file).stat().st_size, "sha256": _sha256(folder / file)}
            for file in (_WEIGHTS, _OPTIMIZER, _RNG, _STATE)
        }
        self._disk.write_json(folder / _FILES, listed, "checkpoint files listed")

    def _write_tensors(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        num_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        try:
            save_file(plain, path)
        except SafetensorError as error:  # carries the operating system's error as text only
            if any(full in str(error) for full in _FULL):
                raise DiskFullError(path, num_bytes) from error
            raise
        with reports_full(path, num_bytes), path.open("rb") as file:
            self._disk.fsync(file.fileno())

    def _remove_old(self, latest: str) -> None:
        older = [name for name in self._names() if _number(name) < _number(latest)]
        num_surplus = max(0, len(older) + 1 - self._keep_last)
        for name in older[:num_surplus]:
            (self._folder / name / _FILES).unlink(missing_ok=True)
            self._disk.reached("old checkpoint no longer listed")
            shutil.rmtree(self._folder / name)
            self._disk.reached("old checkpoint removed")

    def _latest(self) -> str | None:
        path = self._directory / _LATEST
        if not path.exists():
            return None
        name = path.read_text(errors="replace").strip()
        if _number(name) < 0:
            logger.warning("%s names no checkpoint (got %.40r); taking the newest", path, name)
            return None
        return name

    def _names(self) -> list[str]:
        """Oldest first."""
        if not self._folder.is_dir():
            return []
        names = [path.name for path in self._folder.iterdir() if _number(path.name) >= 0]
        return sorted(names, key=_number)


def _number(name: str) -> int:
    found = re.fullmatch(r"[a-z]+-(\d{1,18})", name)
    return int(found[1]) if found else -1


def _read(folder: Path) -> Snapshot:
    """Verify every file, then load.

    Raises:
        CheckpointError: a file is missing, differs from its hash, or is not what its name says.
    """
    try:
        listed = json.loads((folder / _FILES).read_bytes())
        for file in (_WEIGHTS, _OPTIMIZER, _RNG, _STATE):
            if _sha256(folder / file) != listed[file]["sha256"]:
                raise CheckpointError(f"{folder / file} differs from its hash in {_FILES}")
        return Snapshot(
            weights=load_file(folder / _WEIGHTS),
            optimizer=load_file(folder / _OPTIMIZER),
            rng=load_file(folder / _RNG),
            state=json.loads((folder / _STATE).read_bytes()),
        )
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise CheckpointError(f"{folder} is incomplete or damaged ({error})") from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
