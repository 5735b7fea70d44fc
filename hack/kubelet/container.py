"""One start of a container: its process from the first probe to its end."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from spes_operator.local.process import Command, Process
from spes_operator.local.restarts import exit_code

from kubelet.environment import expand
from kubelet.paths import inside, rewrite
from kubelet.pod_spec import Container, Probe
from kubelet.probes import Target, answers
from kubelet.volumes import PodFolder

# What a process gets at least after its hook, as a kubelet grants.
_LEAST_GRACE = timedelta(seconds=2)


class CannotStartError(Exception):
    """The container's program does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A container, ready to start."""

    container: Container
    folder: PodFolder
    image_environment: Mapping[str, str]
    """What the image sets: paths of this machine."""
    environment: Mapping[str, str]
    """What the pod sets: paths as the container sees them."""
    ip: str
    grace: timedelta

    def words(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """A command as a process sees it: variables expanded, paths moved."""
        mounts = [mount.path for mount in self.container.mounts]
        return tuple(
            rewrite(expand(word, self.environment), mounts, self.folder.root) for word in words
        )

    def command(self) -> Command:
        """What to start.

        Raises:
            CannotStartError: Its program is not on this machine.
        """
        environment = self.moved_environment()
        words = self.words(self.container.command)
        program = shutil.which(words[0], path=environment.get("PATH"))
        if program is None:
            raise CannotStartError(f"exec: {words[0]!r}: executable file not found in $PATH")
        return Command(
            arguments=(program, *words[1:]),
            environment=environment,
            directory=self.directory(),
            log=self.folder.log,
        )

    def moved_environment(self) -> dict[str, str]:
        """The environment as a process sees it."""
        mounts = [mount.path for mount in self.container.mounts]
        moved = {
            name: rewrite(value, mounts, self.folder.root)
            for name, value in self.environment.items()
        }
        return {**self.image_environment, **moved}

    def directory(self) -> Path:
        """The process's working directory."""
        given = Path(self.container.working_directory or "/")
        return inside(self.folder.root, given)  # type: ignore[arg-type]  # POSIX on Linux

    def target(self, probe: Probe) -> Target:
        """Whom to probe."""
        return Target(
            ip=self.ip,
            ports=self.container.ports,
            directory=self.directory(),
            environment=self.moved_environment(),
            command=self.words(tuple(probe.action["command"])) if probe.kind == "exec" else (),
        )


class RunningContainer:
    """A container whose process was started."""

    def __init__(self, launch: Launch, process: Process, on_ready: Callable[[bool], None]) -> None:
        """Use `start`."""
        self._launch = launch
        self._process = process
        self._on_ready = on_ready

    @classmethod
    async def start(cls, launch: Launch, on_ready: Callable[[bool], None]) -> RunningContainer:
        """Start the process; `on_ready` hears of every change of readiness.

        Raises:
            CannotStartError: Its program is not on this machine.
        """
        return cls(launch, await Process.start(launch.command()), on_ready)

    async def run(self) -> int:
        """Probe it until it ends; the exit code. When cancelled, the process is killed."""
        container = self._launch.container
        probes = []
        if container.readiness is None:
            self._on_ready(True)
        else:
            probes.append(asyncio.create_task(self._watch_readiness(container.readiness)))
        if container.liveness is not None:
            probes.append(asyncio.create_task(self._watch_liveness(container.liveness)))
        try:
            return exit_code(await self._process.wait())
        finally:
            for probe in probes:
                probe.cancel()
            if probes:
                await asyncio.wait(probes)
            if self._process.returncode is None:
                await self._process.kill()

    async def stop(self, grace: timedelta) -> None:
        """Let it linger as its hook says, SIGTERM, and SIGKILL when `grace` is over."""
        linger = min(self._launch.container.linger, grace)
        if linger:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), linger.total_seconds())
        await self._process.stop(max(grace - linger, _LEAST_GRACE) if grace else grace)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    async def _watch_readiness(self, probe: Probe) -> None:
        async with aclosing(answers(probe, self._launch.target(probe), first=False)) as verdicts:
            async for verdict in verdicts:
                self._on_ready(verdict)

    async def _watch_liveness(self, probe: Probe) -> None:
        async with aclosing(answers(probe, self._launch.target(probe), first=True)) as verdicts:
            async for alive in verdicts:
                if not alive:
                    await self.stop(self._launch.grace)
