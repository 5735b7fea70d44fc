"""This machine, as far as a run uses it: its programs and the environment of what is started."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from spes_operator.errors import SpesError
from spes_operator.local.process import Command, Process
from spes_operator.local.process_log import last_line

TRAINER = "spes-trainer"


class ToolError(SpesError):
    """A program that the run needs for its report failed; the run itself is not harmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Programs are found on the PATH of `environment`."""

    environment: Mapping[str, str]
    """Of every process, complete."""

    def with_threads(self, threads: int) -> dict[str, str]:
        """The environment of a process that computes on so many threads."""
        return {**self.environment, "OMP_NUM_THREADS": str(threads)}


async def run_tool(command: Command, limit: timedelta) -> None:
    """Run a program to its end.

    Raises:
        ToolError: It failed, or took longer than `limit`; says where its log is.
        ConfigError: It is not installed.
    """
    process = await Process.start(command)
    name = Path(command.arguments[0]).name
    try:
        code = await asyncio.wait_for(process.wait(), limit.total_seconds())
    except TimeoutError:
        raise ToolError(
            f"{name} took longer than {limit.total_seconds():.0f} s; log {command.log}"
        ) from None
    finally:
        if process.returncode is None:
            await process.kill()
    if code != 0:
        raise ToolError(f"{name} ended with {code}; log {command.log}: {last_line(command.log)}")
