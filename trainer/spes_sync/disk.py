"""Durable writes: temporary file, fsync, rename, fsync of the directory.

Everything the sync server writes goes through here. After each durable write a named crash point is
reported to `reached`, so that tests can kill the process exactly there.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spes_sync.errors import DiskFullError

_FULL = (errno.ENOSPC, errno.EDQUOT)


def _go_on(point: str) -> None:
    """The crash hook outside tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """How files reach the disk; tests put their own hooks in."""

    reached: Callable[[str], None] = _go_on
    fsync: Callable[[int], None] = os.fsync

    def write(self, path: Path, data: bytes, point: str) -> None:
        """Replace a file in one step: a reader (or a restart) sees the old bytes or the new."""
        new = path.with_name(f".{path.name}.new")
        with reports_full(path, len(data)):
            with new.open("wb") as file:
                file.write(data)
                file.flush()
                self.fsync(file.fileno())
            new.replace(path)
            self.sync_directory(path.parent)
        self.reached(point)

    def write_json(self, path: Path, value: Any, point: str) -> None:
        """Replace a file by a value as JSON."""
        text = json.dumps(value, indent=1, sort_keys=True)
        self.write(path, text.encode() + b"\n", point)

    def sync_directory(self, path: Path) -> None:
        """Make created, renamed and removed names in a directory durable."""
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def reports_full(path: Path, num_bytes: int) -> Iterator[None]:
    """Turn "no space left" into an error that names the file and what it needs."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFullError(path, num_bytes) from error
        raise
