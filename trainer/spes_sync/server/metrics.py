"""Prometheus metrics, computed from the state at each scrape: series of gone peers vanish alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from spes_proto.v1 import control_pb2

from spes_sync.dropped import Coding
from spes_sync.server import messages
from spes_sync.server.engine import Engine


class RunCollector(Collector):
    """Reads the engine's state; each scrape sees one consistent state."""

    def __init__(self, engine: Engine) -> None:
        """Read this engine."""
        self._engine = engine

    def collect(self) -> Iterable[Metric]:
        """All metrics as they are now."""
        engine = self._engine
        state = messages.sync_state(engine.run, engine.accounts, engine.clocks.now())
        yield from _job(state)
        yield from _peers(state)
        yield from _codings(engine)
        refusals = CounterMetricFamily(
            "spes_sync_refusals", "Refused pushes and joins by reason.", labels=["reason"]
        )
        for reason, count in sorted(dict(engine.accounts.refusals).items()):
            refusals.add_metric([reason], count)
        yield refusals


def serve(engine: Engine, address: str, port: int) -> tuple[WSGIServer, int]:
    """Serve /metrics; returns the server and the port it really has."""
    registry = CollectorRegistry()
    registry.register(RunCollector(engine))
    server, _ = start_http_server(port, addr=address, registry=registry)
    return server, server.server_port


def _job(state: control_pb2.SyncState) -> Iterator[Metric]:
    values = {
        "spes_sync_round": ("The open or next round.", state.round),
        "spes_sync_version": ("The served version; -1 before the seed.", state.version),
        "spes_sync_epoch": ("The active ownership epoch.", state.active_epoch),
        "spes_sync_phase": (
            "1 seeding, 2 waiting, 3 open, 4 held, 5 closing, 6 complete.",
            state.phase,
        ),
        "spes_sync_expected": ("Peers expected in the open round.", len(state.expected)),
        "spes_sync_pushed": ("Peers whose push is verified.", len(state.pushed)),
        "spes_sync_tokens": ("Committed tokens, all peers.", state.global_tokens),
        "spes_sync_held_out_loss": ("Last held-out loss, nats per token.", state.held_out_loss),
    }
    for name, (text, value) in values.items():
        yield GaugeMetricFamily(name, text, value=value)


def _codings(engine: Engine) -> Iterator[Metric]:
    """What the codecs did to each peer's last push, and to the last version's frame."""
    run = engine.run
    frame = run.head.frame if run is not None and run.head is not None else Coding()
    yield GaugeMetricFamily(
        "spes_sync_frame_compression",
        "The last version's delta: bytes in float32 over bytes as coded.",
        value=frame.compression,
    )
    yield GaugeMetricFamily(
        "spes_sync_frame_codec_error",
        "The same: norm of what the downlink's codec dropped over norm of what arrived.",
        value=frame.error,
    )
    smaller = GaugeMetricFamily(
        "spes_sync_push_compression",
        "Last push: bytes in float32 over bytes as sent.",
        labels=["peer"],
    )
    error = GaugeMetricFamily(
        "spes_sync_push_codec_error",
        "Last push: norm of what the codec dropped over norm of what arrived.",
        labels=["peer"],
    )
    codec = GaugeMetricFamily(
        "spes_sync_push_codec",
        "Last push: 1 for the codec that it came in.",
        labels=["peer", "codec"],
    )
    for peer in sorted(run.state.peers) if run is not None else ():
        account = engine.accounts.seen(peer)
        coding = account.coding
        if account.codec is not None:
            codec.add_metric([peer, account.codec], 1)
        smaller.add_metric([peer], coding.compression)
        error.add_metric([peer], coding.error)
    yield from (smaller, error, codec)


def _peers(state: control_pb2.SyncState) -> Iterator[Metric]:
    connected = GaugeMetricFamily("spes_sync_connected", "1 if connected.", labels=["peer"])
    rate = GaugeMetricFamily("spes_sync_tokens_per_second", "Last heard rate.", labels=["peer"])
    up = CounterMetricFamily("spes_sync_bytes_up", "Bytes pushed.", labels=["peer"])
    down = CounterMetricFamily("spes_sync_bytes_down", "Bytes pulled.", labels=["peer"])
    wait = CounterMetricFamily("spes_sync_wait_seconds", "Push to commit.", labels=["peer"])
    latest = GaugeMetricFamily(
        "spes_sync_contribution", "Its part of the last version's tokens.", labels=["peer"]
    )
    so_far = GaugeMetricFamily(
        "spes_sync_contribution_so_far", "Its part of all tokens so far.", labels=["peer"]
    )
    for peer in state.peers:
        connected.add_metric([peer.peer], float(peer.connected))
        rate.add_metric([peer.peer], peer.tokens_per_second)
        up.add_metric([peer.peer], peer.bytes_up)
        down.add_metric([peer.peer], peer.bytes_down)
        wait.add_metric([peer.peer], peer.wait_seconds)
        latest.add_metric([peer.peer], peer.contribution)
        so_far.add_metric([peer.peer], peer.contribution_so_far)
    yield from (connected, rate, up, down, wait, latest, so_far)
