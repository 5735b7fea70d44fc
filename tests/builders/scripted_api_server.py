"""An API server that says exactly what a test tells it to, faults included."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
# A test that keeps a server waiting for longer has failed.
_HANG_SECONDS = 30.0


class Asked(NamedTuple):
    """One request that came."""

    method: str
    path: str
    query: Mapping[str, str]
    authorization: str


def says(document: Any, status: int = 200) -> Answer:
    """An answer of one JSON document."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(document, status=status)

    return answer


def refuses(code: int, reason: str = "") -> Answer:
    """An answer of one Kubernetes Status."""
    return says({"kind": "Status", "code": code, "reason": reason, "message": reason}, code)


def streams(*events: Any, end: str = "closed") -> Answer:
    """The lines of a watch; after them it is closed, "cut" within a line, "dropped" or "silent"."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for event in events:
            await response.write(json.dumps(event).encode() + b"\n")
        if end == "cut":
            await response.write(b'{"type": "ADD')
        if end == "silent":
            await asyncio.sleep(_HANG_SECONDS)
        if end == "dropped" and request.transport is not None:
            request.transport.abort()
        return response

    return answer


def either(*, listings: Sequence[Answer], watches: Sequence[Answer]) -> Answer:
    """The next of the listings or of the watches, whichever is asked for; the last ever after."""
    scripts = {False: list(listings), True: list(watches)}

    async def answer(request: web.Request) -> web.StreamResponse:
        script = scripts["watch" in request.query]
        return await (script.pop(0) if len(script) > 1 else script[0])(request)

    return answer


async def hangs(_: web.Request) -> web.StreamResponse:
    """No answer at all."""
    await asyncio.sleep(_HANG_SECONDS)
    return web.Response()


# What the server says of itself, whatever its script: that it has ConfigMaps (and namespaces, for
# which kopf waits although it never reads them).
_DISCOVERY: Mapping[str, Any] = {
    "/api": {"versions": ["v1"]},
    "/apis": {"groups": []},
    "/api/v1": {
        "resources": [
            {
                "name": "configmaps",
                "singularName": "configmap",
                "kind": "ConfigMap",
                "namespaced": True,
                "verbs": ["get", "list", "watch", "patch"],
            },
            {
                "name": "namespaces",
                "singularName": "namespace",
                "kind": "Namespace",
                "namespaced": False,
                "verbs": ["get", "list", "watch"],
            },
        ]
    },
}


class ScriptedApiServer:
    """Gives each request the next answer of its script, and the last one ever after."""

    def __init__(self, *script: Answer, faults: Sequence[Answer] = ()) -> None:
        """Serves between `async with`; the first ones who ask what it has get `faults` instead."""
        self._script, self._faults = list(script), list(faults)
        self._answering: set[asyncio.Task[object]] = set()
        self.asked: list[Asked] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._serve), shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = site.name.replace("127.0.0.1:0", f"127.0.0.1:{self._runner.addresses[0][1]}")
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._answering:
            task.cancel()
        await self._runner.cleanup()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path in _DISCOVERY:
            if self._faults:
                return await self._faults.pop(0)(request)  # type: ignore[arg-type]
            return web.json_response(_DISCOVERY[request.path])
        self.asked.append(
            Asked(
                request.method,
                request.path,
                request.query,
                request.headers.get("Authorization", ""),
            )
        )
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        answer = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        return await answer(request)  # type: ignore[arg-type]

    def kubeconfig(self, path: Path, user: Mapping[str, str] | None = None) -> Path:
        """A kubeconfig for it."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": {"server": self.url}}],
            "users": [{"name": "me", "user": dict(user or {})}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
            "current-context": "it",
        }
        path.write_text(json.dumps(document))
        return path
