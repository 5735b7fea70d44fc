"""KopfFeed: kopf watches and wakes, and does nothing else.

It posts no Events, patches nothing and adds no finalizer; what changed is decided elsewhere. Runs
in a thread and an event loop of its own: kopf takes a loop over, and two feeds of one process (a
member's) must not meet. Kopf finds out once, at its start, what is served; so it is begun only when
its kinds are, and begun again until then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import kopf

from spes_operator.backoff import Backoff
from spes_operator.errors import SpesError, UnavailableError
from spes_operator.k8s.api import WatchEvent
from spes_operator.k8s.cluster import without_bookkeeping
from spes_operator.k8s.connection import Connection, Request, read_access
from spes_operator.k8s.feed import Handler
from spes_operator.k8s.resources import RESOURCES, path_of

logger = logging.getLogger(__name__)

# A server ends a watch after this; one that brings nothing, not even a bookmark, is begun again.
# Whole seconds: the API server refuses "300.0".
_SERVER_SECONDS, _CLIENT_SECONDS, _INACTIVE_SECONDS = 300, 330, 90
_CONNECT_SECONDS, _REQUEST_SECONDS = 10.0, 20.0
# Kopf's own retries of a request, before it gives up and is started anew.
_BACKOFFS = (1, 2, 4, 8)
# Credentials are read again after this: others renew tokens in their files.
_ACCESS_LIFE = timedelta(minutes=5)
# Before a kopf that ended is started anew.
_RETRIES = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=30))
# Its loop shows that it turns this often.
_TURN_SECONDS = 5.0
# For kopf to end when asked.
_END_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KopfSettings:
    """What differs between programs."""

    kubeconfig: Path | None
    """None: of the pod it runs in."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Kind -> label selector of the objects that matter."""


class KopfFeed:
    """Feed over an API server."""

    def __init__(self, settings: KopfSettings) -> None:
        """Nothing is read before `run`."""
        self._settings = settings
        self._life: _Life | None = None

    @property
    def idle_for(self) -> timedelta:
        """Since kopf's loop last turned; 0 while there is none, or none that has begun to turn."""
        life = self._life  # read once: a probe asks from another thread
        turned = life.turned_at if life else None
        return timedelta() if turned is None else timedelta(seconds=time.monotonic() - turned)

    async def run(self, handlers: Mapping[str, Handler], namespace: str) -> None:
        """Call a kind's handler for every object and at each change, until cancelled."""
        failures = 0
        while True:
            life = self._life = _Life(self._settings, handlers, self._registry(handlers), namespace)
            thread = asyncio.create_task(asyncio.to_thread(life.run))
            try:
                await asyncio.shield(thread)
                logger.warning("kopf ended; it is started anew")
            except asyncio.CancelledError:
                life.end()
                await asyncio.wait([thread], timeout=_END_SECONDS)
                if thread.done():
                    thread.exception()  # what ends a kopf that is told to end is no news
                raise
            except Exception as error:  # whatever it is: without a feed only the resync is left
                logger.warning("kopf failed error=%r", error)
            self._life = None
            failures = 1 if life.began else failures + 1
            await asyncio.sleep(_RETRIES.drawn(failures).total_seconds())

    def _registry(self, handlers: Mapping[str, Handler]) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        loop = asyncio.get_running_loop()
        for kind, handler in handlers.items():
            resource = RESOURCES[kind]
            group, _, version = resource.api_version.rpartition("/")

            async def on_event(event: kopf.RawEvent, _handler: Handler = handler, **_: Any) -> None:
                obj = without_bookkeeping(dict(event["object"]))
                change = "ADDED" if event["type"] is None else event["type"]
                if change != "BOOKMARK":
                    loop.call_soon_threadsafe(_handler, WatchEvent(type=change, object=obj))

            kopf.on.event(group, version, resource.plural, registry=registry)(on_event)

        async def login(**_: Any) -> kopf.ConnectionInfo:
            return await _access(self._settings.kubeconfig)

        kopf.on.login(registry=registry, retries=1)(login)
        return registry


class _Life:
    """One life of kopf, in a thread of its own."""

    def __init__(
        self,
        settings: KopfSettings,
        kinds: Collection[str],
        registry: kopf.OperatorRegistry,
        namespace: str,
    ) -> None:
        self.began = False
        """It got as far as watching."""
        self.turned_at: float | None = None
        """When its loop last turned; None: not yet, or it is over."""
        self._settings = settings
        self._kinds = kinds
        self._registry = registry
        self._namespace = namespace
        self._is_over = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def run(self) -> None:
        """Live until kopf ends, or until `end` is called from elsewhere."""
        asyncio.run(self._run())

    def end(self) -> None:
        """Let it end soon; may be called from any thread."""
        self._is_over = True
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._stop.set)

    async def _run(self) -> None:
        ready, self._stop = asyncio.Event(), asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if self._is_over:
            return
        turning = asyncio.create_task(self._turn())
        try:
            if not await self._is_served():
                return
            await kopf.operator(
                registry=self._registry,
                settings=_settings(self._settings.labels),
                standalone=True,
                clusterwide=not self._namespace,
                namespaces=[self._namespace] if self._namespace else [],
                ready_flag=ready,
                stop_flag=self._stop,
            )
        finally:
            self.began = ready.is_set()
            turning.cancel()
            self.turned_at = None

    async def _is_served(self) -> bool:
        """Whether kopf may begin; False: it is told to end meanwhile."""
        assert self._stop is not None
        served = asyncio.create_task(check_served(self._settings.kubeconfig, self._kinds))
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait({served, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not served.done():
            served.cancel()
            return False
        await served
        return True

    async def _turn(self) -> None:
        while True:
            self.turned_at = time.monotonic()
            await asyncio.sleep(_TURN_SECONDS)


async def check_served(kubeconfig: Path | None, kinds: Collection[str]) -> None:
    """See that the API server serves the kinds: kopf looks once, and never watches what it missed.

    Raises:
        SpesError: It refuses to say, is away, or does not serve one of them.
    """
    connection = await Connection.open(kubeconfig)
    try:
        for root in sorted({path_of(kind).rpartition("/")[0] for kind in kinds}):
            answer = await connection.send(Request(method="GET", path=root, query={}))
            served = {item["name"] for item in answer.get("resources") or ()}
            here = {kind for kind in kinds if path_of(kind).rpartition("/")[0] == root}
            if absent := sorted(kind for kind in here if RESOURCES[kind].plural not in served):
                raise UnavailableError(f"{root} serves no {', '.join(absent)}; install the CRDs")
    finally:
        await connection.close()


def _settings(labels: Mapping[str, str]) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.process.ultimate_exiting_timeout = None
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.server_timeout = _SERVER_SECONDS
    settings.watching.client_timeout = _CLIENT_SECONDS
    settings.watching.connect_timeout = _CONNECT_SECONDS
    settings.watching.inactivity_timeout = _INACTIVE_SECONDS
    settings.watching.chunk_size = 500
    settings.networking.request_timeout = _REQUEST_SECONDS
    settings.networking.connect_timeout = _CONNECT_SECONDS
    settings.networking.error_backoffs = _BACKOFFS
    settings.networking.trust_env = True
    for kind, selector in labels.items():
        resource = RESOURCES[kind]
        group = resource.api_version.rpartition("/")[0]
        settings.watching.label_selectors[group, resource.plural] = selector
    return settings


async def _access(kubeconfig: Path | None) -> kopf.ConnectionInfo:
    try:
        access = await read_access(kubeconfig)
    except SpesError as error:
        raise kopf.PermanentError(str(error)) from error
    scheme, _, token = (access.authorization or "").partition(" ")
    return kopf.ConnectionInfo(
        server=access.server,
        ca_path=access.ca_file,
        insecure=access.insecure,
        certificate_path=access.certificate_file,
        private_key_path=access.key_file,
        scheme=scheme or None,
        token=token or None,
        trust_env=True,
        expiration=datetime.now(UTC) + _ACCESS_LIFE,
    )
