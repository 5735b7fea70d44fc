"""One supervised child process: its log in a file, stopped with a grace, never left behind.

Used by the runner. Knows no restarts, no probes and no SPES. A child lives in its own process
group, so that a Ctrl-C at the terminal reaches only `spes run`, and dies when that dies (`launch`).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Self

from spes_operator.errors import ConfigError
from spes_operator.local import launch

# After SIGKILL only a process in an uninterruptible system call is still there.
_KILL_DEADLINE = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to start, and where it writes."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    """Complete: nothing else is inherited."""
    directory: Path
    log: Path
    """Standard output and error, appended."""
    output: Path | None = None
    """Standard output goes here instead, from the start of the file."""


class Process:
    """A running or ended child."""

    def __init__(self, child: asyncio.subprocess.Process, log: Path) -> None:
        """Take over a child that leads its process group; see `start`."""
        self._child = child
        self._group_ended = False
        self.log = log

    @classmethod
    async def start(cls, command: Command) -> Self:
        """Start `command`.

        Raises:
            ConfigError: Its program is not found on the PATH of its environment.
        """
        program = shutil.which(command.arguments[0], path=command.environment.get("PATH"))
        if program is None:
            raise ConfigError(
                f"program {command.arguments[0]!r} not found (looked in "
                f"{command.environment.get('PATH', '')!r}); install SPES with its extra 'trainer'"
            )
        command.directory.mkdir(parents=True, exist_ok=True)
        command.log.parent.mkdir(parents=True, exist_ok=True)
        launcher = (sys.executable, "-I", "-S", launch.__file__, str(os.getpid()))
        with ExitStack() as files:
            log = files.enter_context(command.log.open("ab"))
            output = files.enter_context(command.output.open("wb")) if command.output else log
            child = await asyncio.create_subprocess_exec(
                *launcher,
                program,
                *command.arguments[1:],
                cwd=command.directory,
                env=dict(command.environment),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                start_new_session=True,
            )
        return cls(child, command.log)

    @property
    def pid(self) -> int:
        """Process id, also that of its group."""
        return self._child.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; -N if signal N ended it."""
        return self._child.returncode

    async def wait(self) -> int:
        """Wait, without a deadline, until it has ended; what it left in its group is killed."""
        code = await self._child.wait()
        self._kill_group()
        return code

    async def stop(self, grace: timedelta) -> int:
        """Ask it to end (SIGTERM), kill its group after `grace`; a grace of 0 kills at once."""
        if self.returncode is None and grace:
            self._signal(signal.SIGTERM)
            with suppress(TimeoutError):
                return await asyncio.wait_for(self.wait(), grace.total_seconds())
        return await self.kill()

    async def kill(self) -> int:
        """End it and its group at once (SIGKILL)."""
        self._kill_group()
        return await asyncio.wait_for(self.wait(), _KILL_DEADLINE.total_seconds())

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self._child.send_signal(number)

    def _kill_group(self) -> None:
        if self._group_ended:  # its number may belong to others by now
            return
        self._group_ended = self.returncode is not None
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
