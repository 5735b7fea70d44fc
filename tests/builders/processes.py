"""Tiny Python children, and polls with a deadline for what they do."""

import asyncio
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from spes_operator.k8s.workloads import LocalJob
from spes_operator.local.process import Command

# Far above what a tiny child takes, also on a loaded machine.
DEADLINE_SECONDS = 20.0


def make_command(directory: Path, source: str, **environment: str) -> Command:
    """A Python child that runs `source` in `directory`."""
    return Command(
        arguments=(sys.executable, "-I", "-c", source),
        environment=environment,
        directory=directory,
        log=directory / "log",
    )


def make_job(source: str = "pass", **changes) -> LocalJob:
    """A job named `job` on slot 0 whose process is a Python child that runs `source`."""
    given = {
        "name": "job",
        "job_uid": "uid",
        "assignment": "assignment",
        "slot": "0",
        "command": (sys.executable, "-I", "-c", source),
        "grace": timedelta(seconds=20),
    }
    return LocalJob(**{**given, **changes})


async def until(holds: Callable[[], bool]) -> None:
    """Poll until `holds()`; TimeoutError after the deadline."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not holds():
            await asyncio.sleep(0.01)


async def written(path: Path) -> str:
    """Content of a file once it exists."""
    await until(path.exists)
    return path.read_text()


def runs(pid: int) -> bool:
    """Whether the process is there and not a zombie."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def gone(pid: int) -> None:
    """Wait until no such process runs."""
    await until(lambda: not runs(pid))
