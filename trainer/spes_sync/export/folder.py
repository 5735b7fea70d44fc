"""A folder that appears whole or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spes_sync.disk import Disk
from spes_sync.errors import ExportError

# Says that a folder is an export of ours and may be replaced by a newer one.
MARKER = "spes-export.json"


def exported_sha256(folder: Path) -> str:
    """The `modelSha256` of the model in an export; empty if the folder is none."""
    try:
        said = json.loads((folder / MARKER).read_bytes())["modelSha256"]
    except (OSError, ValueError, KeyError):
        return ""
    return str(said)


@contextmanager
def replaced_folder(to: Path, disk: Disk) -> Iterator[Path]:
    """Yield an empty folder beside `to` that takes its place when the block ends without an error.

    At most one export writes to a folder at a time. Between the two renames that replace an earlier
    export `to` is absent for an instant; what an interruption leaves beside it (that export, or a
    part of the new one) is put back or removed by the next attempt.

    Raises:
        ExportError: `to` is a file, holds something else than an export, or cannot be made.
    """
    _refuse_foreign(to)
    partial, earlier = to.with_name(f".{to.name}.partial"), to.with_name(f".{to.name}.earlier")
    if earlier.exists() and not to.exists():
        earlier.rename(to)
    for leftover in (partial, earlier):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise ExportError(f"cannot create a folder in {to.parent}: {error.strerror}") from error
    try:
        yield partial
        disk.sync_directory(partial)
        if to.exists():
            to.rename(earlier)
        partial.rename(to)
        disk.sync_directory(to.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(earlier, ignore_errors=True)


def _refuse_foreign(to: Path) -> None:
    if not to.exists():
        return
    if not to.is_dir():
        raise ExportError(f"{to} is a file (expected a folder that is new, empty or an export)")
    if any(to.iterdir()) and not (to / MARKER).is_file():
        raise ExportError(
            f"{to} is not empty and has no {MARKER} (expected a new or empty folder, or an earlier "
            "export); choose another folder"
        )
