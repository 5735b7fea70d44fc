"""A door to an API server that kills whoever writes through it, at a write of the test's choice.

The program under test reaches its API server only through the door, which ends TLS on both sides
and passes everything on, watches too. Crashes between any two writes become reproducible: told
`strike(nth(3), ...)`, the door passes two writes and calls back before, or after, the third.
"""

import asyncio
import json
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import aiohttp
from aiohttp import web
from builders.control_plane import ControlPlane

_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_START_SECONDS = 20.0
_END_SECONDS = 1.0
_HOP_HEADERS = frozenset({"host", "transfer-encoding", "content-length", "connection"})


@dataclass(frozen=True, kw_only=True)
class Write:
    """A request that changes something."""

    method: str
    path: str
    body: Any
    """The object, or the list of operations."""


def nth(number: int) -> Callable[[Write], bool]:
    """Picks the write of that number."""
    left = iter(range(number - 1, -1, -1))
    return lambda _: next(left, -1) == 0


class WriteGate:
    """One door; `url` is its address."""

    def __init__(self, plane: ControlPlane) -> None:
        """Open it on a port of its own."""
        self._plane = plane
        self._picks: Callable[[Write], bool] | None = None
        self._after = False
        self._struck: Callable[[], None] = lambda: None
        self.writes: list[Write] = []
        """Every one that was passed on and taken."""
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._open = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))
        self._thread.start()
        assert self._open.wait(_START_SECONDS)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(_START_SECONDS)
        self._loop.close()

    def strike(
        self, picks: Callable[[Write], bool], struck: Callable[[], None], *, after: bool
    ) -> None:
        """Call `struck` once, at the first write from now that is picked.

        Before it is passed on; `after`: when it was taken.
        """
        self._picks, self._after, self._struck = picks, after, struck

    def disarm(self) -> None:
        """Let every write pass again."""
        self._picks = None

    async def _run(self) -> None:
        server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server_side.load_cert_chain(*self._plane.server_certificate)
        client_side = ssl.create_default_context(cafile=str(self._plane.ca_file))
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=client_side, limit=0),
            timeout=timeout,
            auto_decompress=False,
        ) as session:

            async def serve(request: web.BaseRequest) -> web.StreamResponse:
                return await self._pass_on(request, session)

            server = web.Server(serve, handler_cancellation=True)  # a watch ends with its reader
            runner = web.ServerRunner(server, shutdown_timeout=_END_SECONDS)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_side)
            await site.start()
            port = runner.addresses[0][1]
            self.url = f"https://127.0.0.1:{port}"
            self._open.set()
            await self._ended.wait()
            await asyncio.wait_for(runner.cleanup(), _START_SECONDS)

    async def _pass_on(
        self, request: web.BaseRequest, session: aiohttp.ClientSession
    ) -> web.StreamResponse:
        body = await request.read()
        write = _write(request, body) if request.method in _WRITES else None
        if write and not self._after and self._picked(write):
            self._struck()
            return web.Response(status=502)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_HEADERS}
        async with session.request(
            request.method,
            self._plane.url + request.path_qs,
            headers=headers,
            data=body or None,
            skip_auto_headers=("Content-Type", "Accept"),
        ) as answer:
            if write and answer.ok:
                self.writes.append(write)
                if self._after and self._picked(write):
                    await answer.read()
                    self._struck()
                    return web.Response(status=502)
            return await _stream_back(request, answer)

    def _picked(self, write: Write) -> bool:
        """Whether this write is the one; there is none after it."""
        if self._picks is None or not self._picks(write):
            return False
        self._picks = None
        return True


def _write(request: web.BaseRequest, body: bytes) -> Write:
    return Write(method=request.method, path=request.path, body=json.loads(body) if body else None)


async def _stream_back(
    request: web.BaseRequest, answer: aiohttp.ClientResponse
) -> web.StreamResponse:
    headers: Any = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP_HEADERS}
    response = web.StreamResponse(status=answer.status, headers=headers)
    with suppress(ConnectionError, aiohttp.ClientError):
        await response.prepare(request)
        async for piece in answer.content.iter_any():
            await response.write(piece)
        await response.write_eof()
    return response
