"""Errors that the trainer raises on purpose.

ConfigError (of spes_api)      the user can fix it (exit 2)
SyncError (of spes_sync)
├── DivergedError
│   └── NonFiniteError         the loss or a gradient is NaN or infinite; says where
├── DeviceMemoryError          the device has no room for what must be in it at once
├── RankLostError              another process of this peer has ended
└── VolumeError                a directory that cannot be used (exit 2)
    ├── CheckpointError        no checkpoint in it can be read
    └── DiskFullError          no space left; names path and bytes (exit 1)
"""

from __future__ import annotations

from pathlib import Path

from spes_api.errors import ConfigError, Problem
from spes_sync.errors import DiskFullError, DivergedError, SyncError, VolumeError

__all__ = [
    "CheckpointError",
    "ConfigError",
    "DeviceMemoryError",
    "DiskFullError",
    "DivergedError",
    "NonFiniteError",
    "RankLostError",
    "SyncError",
    "VolumeError",
    "config_error",
]


def config_error(
    source: Path | str, field: str, *, got: object, expected: str, hint: str
) -> ConfigError:
    """One thing that the user can fix.

    Args:
        source: File or folder in which it was found.
        field: Path of the field in the SpesJob, for example `data.sources[0].dataset`.
        got: What is there.
        expected: What would be accepted.
        hint: What to do.
    """
    text = f"must be {expected} (got {got}); {hint}"
    return ConfigError.of(str(source), [Problem(text=text, field=field)])


class CheckpointError(VolumeError):
    """A checkpoint is incomplete, damaged or of another run."""


class DeviceMemoryError(SyncError):
    """The device has no room for a single sequence, or for a rank's part of a micro-batch."""


class RankLostError(SyncError):
    """A process of this peer has ended, so the others cannot go on."""


class NonFiniteError(DivergedError):
    """Training produced a NaN or an infinity; the step was not applied."""

    def __init__(self, what: str, where: str) -> None:
        """Say what is not finite (`what`) and where it first appears (`where`)."""
        super().__init__(
            f"{what} is not finite, first seen in {where}; "
            "lower training.optimizer.learningRate or look at the data, then start again"
        )
        self.where = where
