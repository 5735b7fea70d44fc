"""One sync server as a process: always started again, and on the ports it had.

Peers find it again, as they do with a StatefulSet behind a Service.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from spes_operator.errors import ConfigError
from spes_operator.k8s.sync_server import SyncServerSpec, SyncServerStatus
from spes_operator.local.mounts import write_secret
from spes_operator.local.process import Command, Process
from spes_operator.local.process_log import last_line
from spes_operator.local.restarts import RESTARTS, exit_code

logger = logging.getLogger(__name__)

READY_FILE = "ready.json"
_POLL_SECONDS = 0.1
_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a process needs besides its command."""

    environment: Mapping[str, str]
    log: Path
    tls: Mapping[str, bytes]
    """Files of the server's certificate."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where it listens; 0: any free port."""

    peers: int = 0
    control: int = 0

    @property
    def options(self) -> tuple[str, ...]:
        """As the server's command line takes them."""
        return ("--port", str(self.peers), "--control-port", str(self.control))


class SyncProcess:
    """Runs one sync server, and says in `status` where and how it is."""

    def __init__(
        self,
        spec: SyncServerSpec,
        place: Place,
        status: SyncServerStatus,
        changed: Callable[[SyncServerStatus], Awaitable[None]],
    ) -> None:
        """Prepare; nothing is started before `run`.

        Args:
            spec: What to run.
            place: Where.
            status: As it was before.
            changed: Called with every new status.
        """
        self.status = status
        self.failures = 0
        """Starts in a row that never became ready."""
        self._spec = spec
        self._place = place
        self._changed = changed
        self._process: Process | None = None
        self._stopping = False

    async def run(self) -> None:
        """Keep a process running until `stop`; on cancellation it is killed."""
        _, ports = self._read_ready() or (0, Ports())
        while not self._stopping:
            found = await self._run_once(ports)
            # Not ready once: perhaps another process has its port.
            ports, self.failures = (found, 0) if found else (Ports(), self.failures + 1)
            delay = RESTARTS.drawn(self.failures + 1)
            await asyncio.sleep(0 if self._stopping else delay.total_seconds())

    async def stop(self) -> None:
        """SIGTERM, SIGKILL after the grace; it is not started again."""
        self._stopping = True
        if self._process is not None:
            await self._process.stop(timedelta(seconds=self._spec.grace_seconds))

    async def kill(self) -> None:
        """Kill the process; `run` starts it again."""
        if self._process is not None:
            await self._process.kill()

    async def _run_once(self, ports: Ports) -> Ports | None:
        """Run one process to its end; answers where it listened."""
        try:
            process = self._process = await self._start(ports)
        except (ConfigError, OSError) as error:
            await self._report(restarts=self.status.restarts + 1, message=str(error))
            return None
        try:
            found = await self._until_ready(process)
            if found is not None:
                await self._report(
                    ready=True,
                    endpoint=f"{_HOST}:{found.peers}",
                    control_endpoint=f"{_HOST}:{found.control}",
                    message="",
                )
            code = exit_code(await process.wait())
        finally:  # also when cancelled
            if process.returncode is None:
                await process.kill()
        logger.info("sync server ended code=%d restarts=%d", code, self.status.restarts)
        why = f"ended with {code}; log {process.log}: {last_line(process.log)}"
        await self._report(
            ready=False,
            restarts=self.status.restarts + (not self._stopping),
            message="" if self._stopping else why,
        )
        return found

    async def _start(self, ports: Ports) -> Process:
        write_secret(Path(self._spec.tls_directory), self._place.tls)
        return await Process.start(
            Command(
                arguments=(*self._spec.command, *ports.options),
                environment=self._place.environment,
                directory=Path(self._spec.directory),
                log=self._place.log,
            )
        )

    async def _until_ready(self, process: Process) -> Ports | None:
        while process.returncode is None:
            match self._read_ready():
                case (pid, ports) if pid == process.pid:  # else it is of a former process
                    return ports
            await asyncio.sleep(_POLL_SECONDS)
        return None

    def _read_ready(self) -> tuple[int, Ports] | None:
        try:
            ready = json.loads((Path(self._spec.directory) / READY_FILE).read_bytes())
            return int(ready["pid"]), Ports(int(ready["port"]), int(ready["controlPort"]))
        except (FileNotFoundError, ValueError, KeyError, TypeError):  # not there, or damaged
            return None

    async def _report(self, **changes: bool | int | str) -> None:
        self.status = self.status.model_copy(update=changes)
        await self._changed(self.status)
