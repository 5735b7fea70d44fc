"""A whole sync server: volume, engine, both services, metrics, ready file."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from wsgiref.simple_server import WSGIServer

import grpc
from spes_proto.v1 import control_pb2_grpc, sync_pb2_grpc

from spes_sync import recovery
from spes_sync.disk import Disk
from spes_sync.errors import ProtocolError, SyncError, VolumeError
from spes_sync.journal import Journal
from spes_sync.rounds import Phase
from spes_sync.server import messages, metrics
from spes_sync.server.admission import Admission
from spes_sync.server.commits import Commits
from spes_sync.server.control_service import ControlService
from spes_sync.server.engine import Clocks, Engine
from spes_sync.server.pulling import Pulls
from spes_sync.server.pushing import Pushes
from spes_sync.server.run import Run
from spes_sync.server.settings import Settings
from spes_sync.server.sync_service import SyncService
from spes_sync.server.threads import Threads
from spes_sync.server.tls import TlsFiles, credentials
from spes_sync.volume import Volume

logger = logging.getLogger(__name__)

# File and numpy work at once; more would only queue at the disk.
_NUM_THREADS = 8
# How long calls in flight may take to end when the server stops; they are resumed elsewhere.
_STOP_GRACE_SECONDS = 1.0

# NAT and load balancers drop idle connections after a minute or more, so both sides ping; the
# default minimum between pings of 300 s would answer the peers' with "too many pings". A port in
# use must be an error: shared, the kernel would split the peers between two servers.
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Directory and addresses; port 0 takes a free one."""

    directory: Path
    tls: TlsFiles
    address: str = "127.0.0.1"
    port: int = 0
    control_port: int = 0
    metrics_port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The ports that a server really has."""

    port: int
    control_port: int
    metrics_port: int


def _real_clocks() -> Clocks:
    return Clocks(now=time.monotonic, unix=time.time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """Disk and clocks; tests put their own in."""

    disk: Disk = field(default_factory=Disk)
    clocks: Clocks = field(default_factory=_real_clocks)


class SyncServer:
    """Serves one job's volume until it is closed."""

    def __init__(self, where: Where, edges: Edges | None = None) -> None:
        """Nothing is touched before `start`."""
        self._where = where
        self._edges = edges or Edges()
        self._volume: Volume | None = None
        self._threads = Threads(_NUM_THREADS, "spes-files")
        self._servers: list[grpc.aio.Server] = []
        self._metrics: WSGIServer | None = None
        self.engine: Engine | None = None

    async def start(self) -> Ports:
        """Take the volume, go on where it stopped, listen, and say so in `ready.json`.

        Raises:
            VolumeError: the volume is another server's, or damaged.
            CertificateError: TLS files cannot be used.
            PortError: a port is in use.
        """
        where = self._where
        self._volume = Volume.hold(where.directory, self._edges.disk)
        (where.directory / "ready.json").unlink(missing_ok=True)
        journal = Journal(where.directory / "journal.jsonl")
        engine = Engine(self._volume, journal, self._threads, self._edges.clocks)
        self.engine = engine
        commits, admission = Commits(engine), Admission(engine)
        engine.run = await self._threads.run(_recovered, engine)
        sync = SyncService(engine, admission, Pushes(engine, commits), Pulls(engine))
        ports = await self._listen(sync, ControlService(engine, admission))
        engine.start(engine.tick_forever())
        if engine.run is not None and engine.run.state.phase is Phase.COMPLETE:
            engine.start(commits.complete())
        self._volume.disk.write_json(
            where.directory / "ready.json",
            {
                "port": ports.port,
                "controlPort": ports.control_port,
                "metricsPort": ports.metrics_port,
                "pid": os.getpid(),
            },
            "ready",
        )
        logger.info("sync server ready port=%d control_port=%d", ports.port, ports.control_port)
        return ports

    async def failed(self) -> None:
        """Wait until the server cannot go on, and raise why; a new process may help."""
        assert self.engine is not None, "only after `start`"
        await self.engine.failed()

    async def close(self) -> None:
        """Stop without a word to peers: they resume when a server is back on this volume."""
        for server in self._servers:
            await server.stop(_STOP_GRACE_SECONDS)
        if self._metrics is not None:
            await asyncio.to_thread(self._metrics.shutdown)
            self._metrics.server_close()
        if self.engine is not None:
            await self.engine.close()
            self.engine.journal.close()
        self._threads.close()
        if self._volume is not None:
            self._volume.release()

    async def _listen(self, sync: SyncService, control: ControlService) -> Ports:
        where = self._where
        peers, hub = grpc.aio.server(options=_OPTIONS), grpc.aio.server(options=_OPTIONS)
        self._servers = [peers, hub]
        sync_pb2_grpc.add_SyncServicer_to_server(sync, peers)
        control_pb2_grpc.add_ControlServicer_to_server(control, hub)
        port = _bind(peers, where, where.port, for_hub=False)
        control_port = _bind(hub, where, where.control_port, for_hub=True)
        assert self.engine is not None
        try:
            self._metrics, metrics_port = metrics.serve(
                self.engine, where.address, where.metrics_port
            )
        except OSError as error:
            raise _port_error(where.address, where.metrics_port) from error
        await peers.start()
        await hub.start()
        return Ports(port=port, control_port=control_port, metrics_port=metrics_port)


def _recovered(engine: Engine) -> Run | None:
    found = recovery.find(engine.volume)
    if found is None:
        return None
    settings_json = engine.volume.load_settings()
    try:
        settings = Settings.parse(settings_json)
    except ProtocolError as error:
        path = engine.volume.root / "settings.json"
        raise VolumeError(f"{path} is damaged ({error}); restore it or start anew") from error
    state, spools = recovery.resume(engine.volume, found, settings.rules, engine.clocks.now())
    run = Run.resumed(found, state, spools, settings_json)
    if run.head is not None:
        hashes = engine.volume.versions.tensor_hashes(run.head.version)
        run.latest = messages.committed(run.head, hashes)
    engine.journal.write(
        "recovered",
        version=state.version,
        phase=state.phase.name,
        pushes=len(spools),
        problem=found.fault,
    )
    return run


def _bind(server: grpc.aio.Server, where: Where, port: int, *, for_hub: bool) -> int:
    wanted = f"{where.address}:{port}"
    try:
        return server.add_secure_port(wanted, credentials(where.tls, for_hub=for_hub))
    except RuntimeError as error:
        raise _port_error(where.address, port) from error


def _port_error(address: str, port: int) -> SyncError:
    return SyncError(
        f"cannot listen on {address}:{port} (in use, or not an address of this machine); "
        "choose another, or 0 for a free one"
    )
