"""Files with secrets: read by their owner alone, and always the whole old or the whole new one.

Called by whoever keeps tokens, keys or invitations.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def write_private(path: Path, data: bytes) -> None:
    """Replace `path`; returns once the new file is on the disk."""
    with private_draft(path) as draft:
        draft.write_bytes(data)


@contextlib.contextmanager
def private_draft(path: Path) -> Iterator[Path]:
    """An empty file to write to, beside `path`; takes its place at the end, if nothing fails.

    Raises:
        OSError: The folder takes no file: said before anything else is done.
    """
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)  # of a process that was killed
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        yield draft
        _sync(draft)
        draft.replace(path)
        _sync(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
