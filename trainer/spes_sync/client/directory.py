"""A peer's directory: one process at a time, one job for good."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spes_sync.errors import VolumeError


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Hold the directory while the block runs; a lock of the kernel's, so a kill releases it.

    Raises:
        VolumeError: it cannot be written, or another process holds it; names the process.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / "peer.lock").open("a+")
    except OSError as error:
        raise VolumeError(
            f"{directory} cannot be used (got {error.strerror}, expected a writable directory); "
            "choose another"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            raise VolumeError(
                f"{directory} is in use by process {lock.read(20).strip() or 'unknown'}; "
                "give each peer a directory of its own"
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def claim(directory: Path, job_uid: str) -> None:
    """Bind the directory to a job, so that no peer resumes from another job's checkpoint.

    Raises:
        VolumeError: it is bound to another job.
    """
    bound = directory / "job"
    if not bound.exists():
        temporary = directory / "job.new"
        temporary.write_text(job_uid)
        temporary.replace(bound)
    elif (found := bound.read_text()) != job_uid:
        raise VolumeError(
            f"{directory} belongs to another job (got {found}, expected {job_uid}); "
            "give each job a directory of its own"
        )
