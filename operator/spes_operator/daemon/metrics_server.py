"""What a program tells over HTTP, in threads: it answers also while the program's loop is busy.

/metrics and /readyz on one port, /healthz on another: that answers from the first moment on, so
that an API server that is away does not look like a program that hangs.
"""

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
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

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
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    metrics = make_wsgi_app(registry)

    def app(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO") == "/readyz":
            return _answer(start, good=is_ready())
        found: Iterable[bytes] = metrics(environ, start)
        return found

    with _serve("metrics", app, address, port):
        yield


@contextlib.contextmanager
def serve_liveness(is_alive: Callable[[], bool], address: str, port: int) -> Iterator[None]:
    """Serve /healthz until the block ends; port 0: nothing.

    Raises:
        ConfigError: The port cannot be had.
    """

    def app(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        return _answer(start, good=environ.get("PATH_INFO") == "/healthz" and is_alive())

    with _serve("probes", app, address, port):
        yield


def _answer(start: StartResponse, *, good: bool) -> Iterable[bytes]:
    start("200 OK" if good else "503 Service Unavailable", [])
    return [b""]


@contextlib.contextmanager
def _serve(name: str, app: WSGIApplication, address: str, port: int) -> Iterator[None]:
    if not port:
        yield
        return
    try:
        server = make_server(address, port, app, _Server, _Quiet)
    except OSError as error:
        raise ConfigError(f"{name} cannot be served on {address}:{port} ({error})") from error
    thread = threading.Thread(target=server.serve_forever, daemon=True, name=name)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
