"""A TCP relay that can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

_PIECE = 65_536
_CONNECT_SECONDS = 5.0

Address: TypeAlias = tuple[str, int]


class Relay:
    """Listens on one port and forwards each connection to wherever `target` says then."""

    def __init__(self, target: Callable[[], Address | None]) -> None:
        """`target`: None when there is nobody; the connection is closed then."""
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_cut = False

    async def listen(self, address: Address) -> None:
        """Start to forward.

        Raises:
            OSError: The port is taken.
        """
        self._server = await asyncio.start_server(self._serve, *address)

    def cut(self) -> None:
        """Break every connection, and every new one at once, until `mend`."""
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        """Let connections through again."""
        self._is_cut = False

    def retire(self) -> None:
        """Stop listening; connections that are open go on."""
        if self._server is not None:
            self._server.close()

    def close(self) -> None:
        """Stop listening and break every connection."""
        self.cut()
        self.retire()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            target = None if self._is_cut else self._target()
            if target is None:
                return
            async with asyncio.timeout(_CONNECT_SECONDS):
                far_reader, far_writer = await asyncio.open_connection(*target)
            self._writers.add(far_writer)
            try:
                async with asyncio.TaskGroup() as pumps:
                    pumps.create_task(_pump(reader, far_writer))
                    pumps.create_task(_pump(far_reader, writer))
            finally:
                self._drop(far_writer)
        except (OSError, TimeoutError):
            return
        finally:
            self._drop(writer)

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.close()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(_PIECE):
            sink.write(data)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()
