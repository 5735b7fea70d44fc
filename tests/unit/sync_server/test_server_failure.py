"""A server that cannot go on says so and ends; it is started again."""

from __future__ import annotations

import asyncio

import pytest
from builders.tls import make_tls
from spes_sync.server.server import SyncServer, Where
from spes_sync.server.tls import TlsFiles

DEADLINE_SECONDS = 20.0


async def _fail() -> None:
    raise RuntimeError("a bug")


async def _serve_until_failure(where: Where) -> None:
    server = SyncServer(where)
    try:
        await server.start()
        assert server.engine is not None
        server.engine.start(_fail())
        async with asyncio.timeout(DEADLINE_SECONDS):
            await server.failed()
    finally:
        await server.close()


def test_an_error_beside_the_events_is_not_swallowed(tmp_path):
    tls = TlsFiles.inside(make_tls(tmp_path / "tls").directory)
    where = Where(directory=tmp_path / "sync", tls=tls)
    with pytest.raises(RuntimeError, match="a bug"):
        asyncio.run(_serve_until_failure(where))
