"""/metrics and /readyz of a program, in a thread: they answer also while its loop is busy."""

from __future__ import annotations

import contextlib
import logging
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.registry import Collector

from spes_operator.errors import ConfigError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

logger = logging.getLogger(__name__)


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    timeout = 10  # seconds for a client to ask

    def log_message(self, *_: object) -> None:
        """Scrapes are no events."""


@contextlib.contextmanager
def serve_metrics(
    collector: Collector, is_ready: Callable[[], bool], address: str, port: int
) -> Iterator[None]:
    """Serve until the block ends; port 0: nothing.

    Raises:
        ConfigError: The port cannot be had.
    """
    if not port:
        yield
        return
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    metrics = make_wsgi_app(registry)

    def app(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO") == "/readyz":
            start("200 OK" if is_ready() else "503 Service Unavailable", [])
            return [b""]
        found: Iterable[bytes] = metrics(environ, start)
        return found

    try:
        server = make_server(address, port, app, _Server, _Quiet)
    except OSError as error:
        raise ConfigError(f"metrics cannot be served on {address}:{port} ({error})") from error
    thread = threading.Thread(target=server.serve_forever, daemon=True, name="metrics")
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
