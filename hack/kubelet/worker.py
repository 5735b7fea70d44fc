"""One pod's life on its node: inputs, starts and restarts, status, the end.

Called by `kubelet`, which tells it what the API server says about the pod. It writes nothing but
the pod's status, and removes the pod once it is deleted and its process has ended.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from spes_operator.errors import ConflictError, NotFoundError, UnavailableError
from spes_operator.local.process_log import last_line
from spes_operator.local.restarts import RESTARTS

from kubelet.cluster import Cluster
from kubelet.container import CannotStartError, Launch, RunningContainer
from kubelet.environment import Lookup, environment
from kubelet.errors import MissingInputError, OrderError, UnsupportedPodError
from kubelet.pod_spec import Json, Pod
from kubelet.pod_status import ContainerState, Ended, Fate, PodState, pod_status
from kubelet.volumes import PodFolder, mount, write

logger = logging.getLogger(__name__)

# Images of this registry cannot be pulled; all others count as pulled.
_NO_REGISTRY = "registry.invalid/"
_LOST = Ended(
    code=137,
    started=datetime.fromtimestamp(0, UTC),
    finished=datetime.fromtimestamp(0, UTC),
    reason="ContainerStatusUnknown",
    message="the container could not be located when its node came back",
)
_CANNOT_START = 128
_OVER = ("Succeeded", "Failed")
_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What the pods of a node share."""

    cluster: Cluster
    lookup: Lookup
    image_environment: Mapping[str, str]
    """What every image sets."""


class PodWorker:
    """A pod that is bound to a present node."""

    def __init__(self, pod: Pod, folder: PodFolder, ip: str, site: Site) -> None:
        """Take over the pod; nothing is started before `run`."""
        self.pod = pod
        self.ip = ip
        self._folder = folder
        self._site = site
        self._state = ContainerState()
        self._fate = Fate()
        self._status: Json = {}
        self._container: RunningContainer | None = None
        self._stop: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._inputs = asyncio.Event()
        self._ending = asyncio.Event()
        self._deleted = asyncio.Event()
        self._told = asyncio.Event()

    @property
    def lives(self) -> bool:
        """Its process runs, or its end has not been told yet."""
        return not self._told.is_set()

    def inputs_changed(self) -> None:
        """Objects that the pod refers to may have changed."""
        self._inputs.set()
        if self._container is not None:
            try:
                write(self.pod, self._folder, self._site.lookup, self.ip)
            except MissingInputError as missing:  # files stay as they were
                logger.info("volume not refreshed pod=%s cause=%s", self.pod.name, missing)

    def delete(self, grace: timedelta) -> None:
        """The API server wants it gone."""
        if not self._deleted.is_set():
            self._deleted.set()
            self.end(grace, self._fate)

    def end(self, grace: timedelta, fate: Fate) -> None:
        """Stop it for good."""
        self._fate = fate
        self._changed.set()
        if not self._ending.is_set():
            logger.info("pod ends name=%s grace=%.0fs", self.pod.name, grace.total_seconds())
            self._ending.set()
            if self._container is not None:
                self._stop = asyncio.create_task(self._container.stop(grace))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the pod's process.

        Raises:
            OrderError: It has none now.
        """
        if self._container is None:
            raise OrderError(f"pod {self.pod.name} has no process now")
        self._container.signal(number)

    async def run(self) -> None:
        """From the first start until the pod is gone; on cancellation its process is killed."""
        known = self.pod.raw.get("status") or {}
        if known.get("phase") not in _OVER:
            writing = asyncio.create_task(self._write_statuses())
            try:
                await self._live(was_started=bool(known.get("containerStatuses")))
            finally:
                writing.cancel()
                await asyncio.wait([writing])
            await self._write_status()
        self._told.set()
        await self._deleted.wait()
        await self._site.cluster.forget(self.pod.raw)
        for name in ("root", "volumes"):  # the log stays, for whoever asks what happened
            shutil.rmtree(self._folder.path / name, ignore_errors=True)

    async def _live(self, *, was_started: bool) -> None:
        """Start it as often as its restart policy says."""
        failures = 0
        if was_started:
            self._set(replace(self._state, last=_LOST))
        while not was_started or self._may_restart(_LOST.code):
            try:
                launch = await self._prepared()
                if launch is None:
                    break
                was_ready, code = await self._run_once(launch)
            except UnsupportedPodError as error:
                self._fate = Fate(reason="UnsupportedPod", message=str(error), failed=True)
                break
            failures = 0 if was_ready else failures + 1
            if not self._may_restart(code):
                break
            self._set(self._state.waits("CrashLoopBackOff"))
            await self._pause(RESTARTS.drawn(failures + 1))
            was_started = False
        self._set(replace(self._state, over=True, ready=False, running_since=None))

    def _may_restart(self, code: int) -> bool:
        policy = self.pod.restart
        wanted = policy == "Always" or (policy == "OnFailure" and code != 0)
        return wanted and not self._ending.is_set()

    async def _prepared(self) -> Launch | None:
        """All that the container needs, once it is there; None if the pod ends before."""
        while not self._ending.is_set():
            self._inputs.clear()
            try:
                return self._launch()
            except MissingInputError as missing:
                self._set(self._state.waits(missing.reason, str(missing)))
            await _first(self._inputs, self._ending)
        return None

    def _launch(self) -> Launch:
        pod, lookup = self.pod, self._site.lookup
        if pod.container.image.startswith(_NO_REGISTRY):
            raise MissingInputError(
                "ImagePullBackOff", f'Back-off pulling image "{pod.container.image}"'
            )
        mount(pod, self._folder, lookup, self.ip)
        return Launch(
            container=pod.container,
            folder=self._folder,
            image_environment={**self._site.image_environment, "HOSTNAME": pod.name},
            environment=environment(pod, lookup, self.ip),
            ip=self.ip,
            grace=pod.grace,
        )

    async def _run_once(self, launch: Launch) -> tuple[bool, int]:
        """Whether it was ever ready, and its exit code."""
        was_ready = False
        started = datetime.now(UTC)
        restarts = self._state.restarts + (1 if self._state.last else 0)

        def on_ready(ready: bool) -> None:
            nonlocal was_ready
            was_ready = was_ready or ready
            self._set(replace(self._state, ready=ready))

        try:
            self._container = await RunningContainer.start(launch, on_ready)
        except CannotStartError as error:
            code, reason, message = _CANNOT_START, "StartError", str(error)
        else:
            self._set(replace(self._state, running_since=started, ready=False, restarts=restarts))
            code, reason, message = await self._run_to_end(), "", ""
        if code and launch.container.log_tells_why:
            message = message or last_line(self._folder.log)
        ended = Ended(
            code=code,
            started=started,
            finished=datetime.now(UTC),
            reason=reason,
            message=message,
        )
        self._state = replace(self._state, last=ended, running_since=None, ready=False)
        logger.info("container ended pod=%s code=%d", self.pod.name, code)
        return was_ready, code

    async def _run_to_end(self) -> int:
        assert self._container is not None
        try:
            if self._ending.is_set() and self._stop is None:  # deleted while it was started
                self._stop = asyncio.create_task(self._container.stop(self.pod.grace))
            return await self._container.run()
        finally:
            self._container = None

    async def _pause(self, delay: timedelta) -> None:
        try:
            async with asyncio.timeout(delay.total_seconds()):
                await self._ending.wait()
        except TimeoutError:
            return

    def _set(self, state: ContainerState) -> None:
        self._state = state
        self._changed.set()

    async def _write_statuses(self) -> None:
        while True:
            self._changed.clear()
            await self._write_status()
            await self._changed.wait()

    async def _write_status(self) -> None:
        """Write the status if it differs from the one written last; retry until it is there."""
        while True:
            status = pod_status(
                self.pod,
                PodState(ip=self.ip, container=self._state, fate=self._fate),
                now=datetime.now(UTC),
                before=self._status,
            )
            if status == self._status:
                return
            try:
                await self._site.cluster.merge_status(self.pod.raw, status)
            except (ConflictError, NotFoundError):
                return  # the pod was removed by force
            except UnavailableError as error:
                logger.warning("status waits pod=%s error=%s", self.pod.name, error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            self._status = status


async def _first(*events: asyncio.Event) -> None:
    """Wait until one of them is set."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
