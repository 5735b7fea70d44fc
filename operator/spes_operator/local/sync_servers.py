"""Runs the sync servers that `SyncServer` objects ask for, and writes where they listen."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spes_operator.errors import NotFoundError
from spes_operator.k8s.api import KubeApi
from spes_operator.k8s.follow import follow
from spes_operator.k8s.sync_server import SyncServer, SyncServerStatus
from spes_operator.k8s.typed import list_models
from spes_operator.local.sync_process import Place, SyncProcess
from spes_operator.names import ObjectKey

KIND = SyncServer.__name__
# How long a server waits for the Secret with its certificate before it is looked for again.
_SECRET_POLL_SECONDS = 0.2
# Failed starts in a row after which no further one is expected to help; about ten seconds.
_MANY_FAILURES = 4


class SyncServers:
    """Every sync server of one API."""

    def __init__(self, api: KubeApi, *, environment: Mapping[str, str], logs: Path) -> None:
        """Prepare; nothing is started before `run`.

        Args:
            api: Where the objects are.
            environment: Complete environment of the processes.
            logs: Folder for their output, one file each.
        """
        self._api = api
        self._environment = environment
        self._logs = logs
        self._processes: dict[ObjectKey, SyncProcess] = {}
        self._runs: dict[ObjectKey, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Start and stop servers as objects come and go, until cancelled; then kill them."""
        watch = asyncio.create_task(follow(self._api, KIND, "", lambda _: self._changed.set()))
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                await self._reconcile()
        finally:
            watch.cancel()
            for run in self._runs.values():
                run.cancel()
            await asyncio.gather(watch, *self._runs.values(), return_exceptions=True)

    async def stop(self) -> None:
        """Stop every server with its own grace."""
        await asyncio.gather(*(process.stop() for process in self._processes.values()))

    async def kill(self) -> None:
        """Kill every server's process; each is started again."""
        await asyncio.gather(*(process.kill() for process in self._processes.values()))

    def check(self) -> None:
        """Raise whatever ended the care for a server that should still run."""
        for run in self._runs.values():
            if run.done():
                run.result()

    def broken(self) -> str:
        """Why a server will not come up, after several tries; empty: all is well."""
        for process in self._processes.values():
            if process.failures >= _MANY_FAILURES:
                return f"the sync server does not start: {process.status.message}"
        return ""

    async def _reconcile(self) -> None:
        servers = await list_models(self._api, SyncServer)
        wanted = {
            ObjectKey(server.metadata.namespace, server.metadata.name): server for server in servers
        }
        for key in self._processes.keys() - wanted.keys():
            await self._processes.pop(key).stop()
            await self._runs.pop(key)
        for key in wanted.keys() - self._processes.keys():
            self._processes[key] = process = await self._prepare(key, wanted[key])
            self._runs[key] = asyncio.create_task(process.run())

    async def _prepare(self, key: ObjectKey, server: SyncServer) -> SyncProcess:
        async def write(status: SyncServerStatus) -> None:
            await self._write(key, status)

        place = Place(
            environment=self._environment,
            log=self._logs / f"{key.name}.log",
            tls=await self._secret(key.namespace, server.spec.tls_secret),
        )
        return SyncProcess(server.spec, place, server.status, write)

    async def _secret(self, namespace: str, name: str) -> dict[str, bytes]:
        while True:
            try:
                data = (await self._api.get("Secret", namespace, name))["data"]
                return {key: base64.b64decode(value) for key, value in data.items()}
            except NotFoundError:
                await asyncio.sleep(_SECRET_POLL_SECONDS)

    async def _write(self, key: ObjectKey, status: SyncServerStatus) -> None:
        document: dict[str, Any] = status.model_dump(by_alias=True, mode="json")
        try:
            await self._api.patch_status(KIND, *key, document)
        except NotFoundError:  # deleted while its process ends
            return
