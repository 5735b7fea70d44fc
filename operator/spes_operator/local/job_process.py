"""One job as a process: started, probed, started again by the Job's rules, stopped with a grace."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TypeAlias

from spes_operator.errors import ConfigError
from spes_operator.k8s.workloads import FileProbe, JobStatus, LocalJob
from spes_operator.local.mounts import write_secret
from spes_operator.local.node import Node
from spes_operator.local.process import Command, Process
from spes_operator.local.process_log import last_line
from spes_operator.local.restarts import RESTARTS, exit_code, status_after_exit

logger = logging.getLogger(__name__)

# A kubelet probes every 10 s; here a person watches.
_PROBE_SECONDS = 0.2

# Contents of Secrets by name and key.
Secrets: TypeAlias = Mapping[str, Mapping[str, bytes]]


class JobProcess:
    """A job and the process that runs it now, if any. `job.status` is always current."""

    def __init__(
        self, job: LocalJob, node: Node, secrets: Secrets, changed: Callable[[], None]
    ) -> None:
        """Take over `job`; nothing is started before `run`.

        Args:
            job: As created.
            node: Where it runs.
            secrets: The cluster's Secrets, now and later.
            changed: Called after every change of the status.
        """
        self.job = replace(job, status=JobStatus(active=not job.suspend))
        self._node = node
        self._secrets = secrets
        self._changed = changed
        self._process: Process | None = None
        self._disrupted = False
        self._stopping = False

    async def run(self) -> None:
        """Keep a process running until the job is over; on cancellation it is killed."""
        failures = 0
        while self.job.status.active and not self._stopping:
            await self._wait_for_inputs()
            was_ready = await self._run_once()
            failures = 0 if was_ready else failures + 1
            if self.job.status.active and not self._stopping:
                delay = RESTARTS.drawn(failures + 1)
                await asyncio.sleep(delay.total_seconds())

    async def stop(self, grace: timedelta) -> None:
        """End the process and start none again."""
        self._stopping = True
        if self._process is not None:
            await self._process.stop(grace)

    async def disrupt(self, grace: timedelta) -> None:
        """End the process as the world does, not the job: the end is not counted. Grace 0 kills."""
        if self._process is not None and self._process.returncode is None:
            self._disrupted = True
            await self._process.stop(grace)

    def mount(self, secret: str) -> None:
        """Write the files of `secret` where the job mounts it."""
        for mount in self.job.secret_mounts:
            if mount.secret == secret:
                write_secret(self._node.directory / mount.directory, self._secrets[secret])

    async def _wait_for_inputs(self) -> None:
        if not self._node.present.is_set():
            self._update(reason="Unschedulable", message="its node was taken away")
        await self._node.present.wait()
        wanted = {mount.secret for mount in self.job.secret_mounts}
        while missing := sorted(wanted - self._secrets.keys()):
            self._update(
                reason="CreateContainerConfigError", message=f"secret {missing[0]} not found"
            )
            await asyncio.sleep(_PROBE_SECONDS)

    async def _run_once(self) -> bool:
        """Run one process to its end; answers whether it was ever ready."""
        try:
            self._process = await self._start()
        except (ConfigError, OSError) as error:
            self._update(active=False, reason="Failed", message=str(error))
            return False
        self._disrupted = False
        self._update(reason="", message="")
        try:
            was_ready = await self._probe_until_exit(self._process)
        finally:  # also when cancelled
            if self._process.returncode is None:
                await self._process.kill()
        self._record_end(self._process)
        return was_ready

    async def _start(self) -> Process:
        for mount in self.job.secret_mounts:
            self.mount(mount.secret)
        if self.job.ready_probe is not None:  # a former process may have left it
            (self._node.directory / self.job.ready_probe.path).unlink(missing_ok=True)
        return await Process.start(
            Command(
                arguments=self.job.command,
                environment={**self._node.environment, **self.job.env},
                directory=self._node.directory,
                log=self._node.log,
            )
        )

    async def _probe_until_exit(self, process: Process) -> bool:
        was_ready = False
        ended = asyncio.ensure_future(process.wait())
        try:
            while not ended.done():
                ready = self._is_ready(self.job.ready_probe)
                was_ready = was_ready or ready
                self._update(ready=ready)
                await asyncio.wait([ended], timeout=_PROBE_SECONDS)
        finally:
            ended.cancel()
        return was_ready

    def _is_ready(self, probe: FileProbe | None) -> bool:
        if probe is None:
            return True
        with contextlib.suppress(FileNotFoundError):
            touched = (self._node.directory / probe.path).stat().st_mtime
            return time.time() - touched <= probe.max_age.total_seconds()
        return False

    def _record_end(self, process: Process) -> None:
        assert process.returncode is not None  # it has been waited for
        code = exit_code(process.returncode)
        status = status_after_exit(self.job, code, disrupted=self._disrupted)
        if status.message and not self._disrupted:
            status = replace(
                status, message=f"{status.message}; log {process.log}: {last_line(process.log)}"
            )
        logger.info("process ended job=%s code=%d active=%s", self.job.name, code, status.active)
        self.job = replace(self.job, status=status)
        self._changed()

    def _update(self, **changes: bool | str) -> None:
        status = replace(self.job.status, **changes)  # type: ignore[arg-type]  # fields by name
        if status != self.job.status:
            self.job = replace(self.job, status=status)
            self._changed()
