"""A sync server that says what a test tells it, and never finishes a push or a pull."""

from __future__ import annotations

import queue
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
from builders.sync_server import DEADLINE_SECONDS
from builders.tls import TestTls, make_tls
from builders.toy_learner import toy_manifest
from spes_proto.v1 import sync_pb2, sync_pb2_grpc

_PIECE_SECONDS = 0.05


class ScriptedSync(sync_pb2_grpc.SyncServicer):
    """One job of one peer; `say` is what its Session hears."""

    def __init__(self, settings_json: str) -> None:
        self.manifest = toy_manifest(size=1000)
        self.settings_json = settings_json
        self.pulling, self.pushing = threading.Event(), threading.Event()
        self.address = ""
        self._said: queue.Queue[sync_pb2.ServerEvent] = queue.Queue()
        self._ended = threading.Event()

    def say(self, *events: sync_pb2.ServerEvent) -> None:
        for event in events:
            self._said.put(event)

    def end(self) -> None:
        self._ended.set()

    def Join(self, request, context):  # noqa: ARG002, N802
        return sync_pb2.JoinReply(
            session_key="key",
            next_token="0000000000000000.next",
            settings_json=self.settings_json,
            version=-1,
            incarnation=1,
            job_uid="job",
        )

    def Session(self, request_iterator, context):  # noqa: ARG002, N802
        while context.is_active() and not self._ended.is_set():
            try:
                event = self._said.get(timeout=_PIECE_SECONDS)
            except queue.Empty:
                continue
            yield event
            if event.HasField("stop"):
                return

    def Push(self, request_iterator, context):  # noqa: N802
        next(request_iterator)
        self.pushing.set()
        while context.is_active() and not self._ended.wait(_PIECE_SECONDS):
            pass
        return sync_pb2.PushReply()

    def Pull(self, request, context):  # noqa: N802
        """Byte by byte, so slowly that it takes longer than any test."""
        tensors = [tensor.to_proto() for tensor in self.manifest]
        total = self.manifest.num_bytes
        yield sync_pb2.PullPart(
            header=sync_pb2.PullHeader(
                version=request.want_version,
                base_version=-1,
                codec=sync_pb2.FP32,
                total_bytes=total,
                tensors=tensors,
            )
        )
        for offset in range(total):
            if not context.is_active() or self._ended.wait(_PIECE_SECONDS):
                return
            chunk = sync_pb2.Chunk(offset=offset, data=b"\0", crc32=zlib.crc32(b"\0"))
            yield sync_pb2.PullPart(chunk=chunk)
            self.pulling.set()


@contextmanager
def scripted_sync(root: Path, settings_json: str) -> Iterator[tuple[ScriptedSync, TestTls]]:
    """Serve until the block ends."""
    tls = make_tls(root / "scripted-tls")
    key, certificate = ((tls.directory / name).read_bytes() for name in ("tls.key", "tls.crt"))
    server = grpc.server(ThreadPoolExecutor(max_workers=8))
    sync = ScriptedSync(settings_json)
    sync_pb2_grpc.add_SyncServicer_to_server(sync, server)
    port = server.add_secure_port("localhost:0", grpc.ssl_server_credentials([(key, certificate)]))
    sync.address = f"localhost:{port}"
    server.start()
    try:
        yield sync, tls
    finally:
        sync.end()
        server.stop(None).wait(DEADLINE_SECONDS)
