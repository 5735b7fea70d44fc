"""A TCP relay between peers and their server, which can cut what passes through it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import sleep

_PIECE = 16_384


@dataclass
class Relay:
    """Forwards to `target` until told otherwise."""

    target: tuple[str, int]
    port: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    cuts: int = 0
    cut_up_at: int | None = None  # bytes towards the server after which connections are cut, once
    cut_down_at: int | None = None
    bytes_per_second: float | None = None  # of each connection and direction
    is_down: bool = False  # whoever connects is sent away
    _open: set[socket.socket] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    def cut(self) -> None:
        """Break every connection that is open now."""
        with self._lock:
            self.cuts += 1
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def go_down(self) -> None:
        """Break every connection, and take no other until `go_up`."""
        self.is_down = True
        self.cut()

    def go_up(self) -> None:
        """Serve again."""
        self.is_down = False

    def carry(self, client: socket.socket) -> None:
        """Serve one connection."""
        if self.is_down:
            client.close()
            return
        try:
            server = socket.create_connection(self.target, timeout=5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        with self._lock:
            self._open |= {client, server}
        for source, sink, up in ((client, server, True), (server, client, False)):
            thread = threading.Thread(target=self._pump, args=(source, sink, up), daemon=True)
            thread.start()

    def _pump(self, source: socket.socket, sink: socket.socket, up: bool) -> None:
        with suppress(OSError):
            while data := source.recv(_PIECE):
                self._count(len(data), up=up)
                if self.bytes_per_second is not None:
                    sleep(len(data) / self.bytes_per_second)
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            with self._lock:
                self._open.discard(each)
            each.close()

    def _count(self, size: int, *, up: bool) -> None:
        if up:
            self.bytes_up += size
            if self.cut_up_at is not None and self.bytes_up >= self.cut_up_at:
                self.cut_up_at = None
                self.cut()
        else:
            self.bytes_down += size
            if self.cut_down_at is not None and self.bytes_down >= self.cut_down_at:
                self.cut_down_at = None
                self.cut()


@contextmanager
def relay_to(port: int, host: str = "127.0.0.1") -> Iterator[Relay]:
    """A relay to a port of this machine, until the block ends."""
    relay = Relay((host, port))
    listener = socket.create_server(("127.0.0.1", 0))
    relay.port = listener.getsockname()[1]
    ended = threading.Event()

    def accept() -> None:
        while not ended.is_set():
            with suppress(OSError):
                client, _ = listener.accept()
                relay.carry(client)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        ended.set()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        relay.cut()
        thread.join(5)
