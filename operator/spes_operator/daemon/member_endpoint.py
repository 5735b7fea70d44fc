"""HTTP for probes and for Prometheus: /readyz says whether the hub is reached, /metrics the rest.

Whether the agent is alive is answered by kopf's own endpoint, which proves that kopf goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST


async def serve(
    address: tuple[str, int], *, metrics: Callable[[], bytes], ready: Callable[[], bool]
) -> None:
    """Serve on host and port until cancelled."""

    async def answer_metrics(_: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def answer_ready(_: web.Request) -> web.Response:
        if ready():
            return web.Response(text="the hub answers\n")
        return web.Response(text="the hub does not answer, or refuses\n", status=503)

    application = web.Application()
    application.router.add_get("/metrics", answer_metrics)
    application.router.add_get("/readyz", answer_ready)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, *address).start()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
