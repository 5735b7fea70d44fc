"""Checkpoints: atomic, verified, exactly resumable.

    DIR/latest                    name of the last complete one; its rename is the commit point
    DIR/checkpoints/NAME/
        rank-N.safetensors        the rows of every weight that rank N holds
        rank-N.optim.safetensors  exp_avg, exp_avg_sq, step and ramp per trained tensor, likewise
        rank-N.rng.safetensors    state of torch's random number generator
        state.json                where the run stands
        files.json                SHA-256 and size of each file, written last
        loss.json                 held-out, once the model has been evaluated; says which are best

A kill at any moment leaves `latest` at a complete checkpoint. A directory whose files differ from
its files.json is skipped with a warning and the one before is used. Nothing here can read pickle.

Another number of ranks may resume: each puts its rows together from those of the ranks that saved,
one tensor at a time. Random states stay with their ranks, and no training step draws from them.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import math
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from spes_sync.disk import Disk, reports_full
from torch import Tensor

from spes_trainer.errors import CheckpointError, DiskFullError
from spes_trainer.ranks import ALONE, Ranks
from spes_trainer.retention import kept_checkpoints
from spes_trainer.rows import held_rows

logger = logging.getLogger(__name__)

_STATE = "state.json"
_FILES = "files.json"
_LOSS = "loss.json"
_LATEST = "latest"
# Numbers that belong to a whole tensor, not to its rows.
_SAME_ON_ALL = ("step.", "ramp.")

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
    """Everything that a rank needs to go on as if it had never stopped."""

    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    rng: Mapping[str, Tensor]
    state: Mapping[str, object]
    """Plain JSON."""


class CheckpointStore:
    """The checkpoints of one directory."""

    def __init__(
        self,
        directory: Path,
        *,
        keep_last: int,
        keep_best: int = 0,
        disk: Disk,
        ranks: Ranks = ALONE,
    ) -> None:
        """Look at nothing yet.

        Args:
            directory: The trainer's own, held by this process.
            keep_last: Complete checkpoints that are kept.
            keep_best: Of the lowest loss, kept besides; see `judge`.
            disk: How files are written; its `reached` is told each of CRASH_POINTS.
            ranks: Those whose rows make up a checkpoint.
        """
        self._directory = directory
        self._folder = directory / "checkpoints"
        self._keep_last = keep_last
        self._keep_best = keep_best
        self._disk = disk
        self._ranks = ranks

    def save(self, name: str, snapshot: Snapshot) -> None:
        """Write a checkpoint, then make it the latest, then remove old ones. By all ranks.

        Args:
            name: Ends in a number that grows, for example `round-000017`.
            snapshot: What this rank has; the state is that of rank 0.

        Raises:
            DiskFullError: nothing changed; what was written is removed again.
        """
        folder, speaks = self._folder / name, self._ranks.rank == 0
        try:
            self._together(lambda: self._make(folder) if speaks else None)
            self._together(lambda: self._write_rows(folder, snapshot))
            if speaks:
                self._write_state(folder, snapshot)
        except DiskFullError:
            if speaks:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        if speaks:
            self._commit(name)

    def _together(self, action: Callable[[], None]) -> None:
        """Act on every rank; a disk that is full for one is full for all."""
        full: DiskFullError | None = None
        try:
            action()
        except DiskFullError as error:
            full = error
        if self._ranks.count(full is not None):
            raise full or DiskFullError(self._folder, 0)

    def _make(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)  # of a save that was cut short
        with reports_full(folder, 0):
            folder.mkdir(parents=True)
        self._disk.reached("checkpoint folder made")

    def _commit(self, name: str) -> None:
        self._disk.sync_directory(self._folder)
        self._disk.write(self._directory / _LATEST, name.encode(), "checkpoint is the latest")
        self._remove_old(name)

    def judge(self, name: str, loss: float) -> None:
        """Keep a checkpoint longer than others if its model's held-out loss is among the lowest.

        Does nothing if there is no such checkpoint, or the loss is no number. By rank 0.

        Raises:
            DiskFullError: it counts as not evaluated.
        """
        folder = self._folder / name
        if not self._keep_best or not math.isfinite(loss) or not (folder / _FILES).exists():
            return
        self._disk.write_json(folder / _LOSS, {"loss": loss}, "checkpoint judged")
        self._remove_old(self._latest() or name)

    def load(self) -> Snapshot | None:
        """Return the latest complete checkpoint, None if there never was one.

        Raises:
            CheckpointError: there are checkpoints, and none is complete.
        """
        name = self.newest()
        return None if name is None else self.read(name)

    def read(self, name: str) -> Snapshot:
        """Return what this rank holds of a checkpoint that `newest` has verified.

        Raises:
            CheckpointError: it is not what its files' names say.
        """
        return _read(self._folder / name, self._ranks)

    def state(self, name: str) -> dict[str, object]:
        """Return where the run stood at a checkpoint that `newest` has verified."""
        return dict(json.loads((self._folder / name / _STATE).read_bytes()))

    def newest(self) -> str | None:
        """Verify and name the latest complete checkpoint; None if there never was one.

        Raises:
            CheckpointError: there are checkpoints, and none is complete.
        """
        latest = self._latest()
        names = self._names()
        candidates = [name for name in names if latest is None or _number(name) <= _number(latest)]
        for name in reversed(candidates):
            try:
                _verify(self._folder / name)
            except CheckpointError as error:
                logger.warning("checkpoint skipped, trying the one before: %s", error)
            else:
                return name
        if latest is not None:
            raise CheckpointError(
                f"{self._folder} has no complete checkpoint (got {len(names)} damaged, expected "
                f"{latest}); restore it, or choose another --dir to start again"
            )
        return None

    def _write_rows(self, folder: Path, snapshot: Snapshot) -> None:
        tensors = (snapshot.weights, snapshot.optimizer, snapshot.rng)
        points = ("weights", "optimizer", "rng")
        for file, held, point in zip(_files_of(self._ranks.rank), tensors, points, strict=True):
            self._write_tensors(folder / file, held)
            self._disk.reached(f"checkpoint {point} written")

    def _write_state(self, folder: Path, snapshot: Snapshot) -> None:
        """The state, and the hashes of what all ranks have written."""
        self._disk.write_json(folder / _STATE, snapshot.state, "checkpoint state written")
        listed = {
            file: {"bytes": (folder / file).stat().st_size, "sha256": _sha256(folder / file)}
            for file in (*_files_of_all(self._ranks.size), _STATE)
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
        names = [name for name in self._names() if _number(name) <= _number(latest)]
        losses = {name: loss for name in names if (loss := self._loss(name)) is not None}
        kept = kept_checkpoints(names, losses, keep_last=self._keep_last, keep_best=self._keep_best)
        for name in (name for name in names if name not in kept):
            (self._folder / name / _FILES).unlink(missing_ok=True)
            self._disk.reached("old checkpoint no longer listed")
            shutil.rmtree(self._folder / name)
            self._disk.reached("old checkpoint removed")

    def _loss(self, name: str) -> float | None:
        try:
            return float(json.loads((self._folder / name / _LOSS).read_bytes())["loss"])
        except (OSError, ValueError, KeyError, TypeError):
            return None  # not evaluated, as far as anybody can tell

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


def _files_of(rank: int) -> tuple[str, str, str]:
    """Weights, optimizer, random state."""
    return (
        f"rank-{rank}.safetensors",
        f"rank-{rank}.optim.safetensors",
        f"rank-{rank}.rng.safetensors",
    )


def _files_of_all(size: int) -> list[str]:
    return [file for rank in range(size) for file in _files_of(rank)]


def _verify(folder: Path) -> None:
    """Compare every file with its hash.

    Raises:
        CheckpointError: one is missing, or differs, or is no safetensors.
    """
    try:
        listed = json.loads((folder / _FILES).read_bytes())
        for file in (*_files_of_all(_num_ranks(listed)), _STATE):
            if _sha256(folder / file) != listed[file]["sha256"]:
                raise CheckpointError(f"{folder / file} differs from its hash in {_FILES}")
            if file != _STATE:
                with safe_open(folder / file, framework="pt"):
                    pass
        json.loads((folder / _STATE).read_bytes())
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise CheckpointError(f"{folder} is incomplete or damaged ({error})") from error


def _num_ranks(listed: Mapping[str, object]) -> int:
    """How many have saved; rank 0 always has."""
    size = 1
    while _files_of(size)[0] in listed:
        size += 1
    return size


def _read(folder: Path, ranks: Ranks) -> Snapshot:
    try:
        saved = _num_ranks(json.loads((folder / _FILES).read_bytes()))
        files = [_files_of(rank) for rank in range(saved)]
        own = files[min(ranks.rank, saved - 1)]
        return Snapshot(
            weights=_assemble([folder / weights for weights, _, _ in files], ranks),
            optimizer=_assemble([folder / optimizer for _, optimizer, _ in files], ranks),
            rng=load_file(folder / own[2]),
            state=json.loads((folder / _STATE).read_bytes()),
        )
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise CheckpointError(f"{folder} is incomplete or damaged ({error})") from error


def _assemble(files: Sequence[Path], ranks: Ranks) -> dict[str, Tensor]:
    """This rank's rows of every tensor, from the files of the ranks that saved, in their order."""
    if len(files) == ranks.size:
        return load_file(files[ranks.rank])
    with ExitStack() as stack:
        parts = [stack.enter_context(safe_open(file, framework="pt")) for file in files]
        found = {}
        for name in parts[0].keys():  # noqa: SIM118 - not a dict
            if name.startswith(_SAME_ON_ALL):
                found[name] = parts[0].get_tensor(name)
                continue
            whole = torch.cat([part.get_tensor(name) for part in parts])
            found[name] = whole[held_rows(len(whole), ranks.rank, ranks.size)].clone()
        return found


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
