"""Peers of the sync round benchmark, each in a process of its own, and the floor they are held to.

A wire peer pushes prepared deltas and pulls frames as the real client does, SHA-256 and CRC
included, but trains nothing. In INT8 it also encodes its delta, with residual, and decodes what it
pulls, within the time that is measured. The floor is a bare gRPC server under the same TLS that
takes and gives the same bytes in 1 MiB messages with the same SHA-256, and writes one snapshot.
"""

from __future__ import annotations

import hashlib
import os
import queue
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Barrier

import grpc
import numpy as np
from spes_proto.v1 import sync_pb2, sync_pb2_grpc
from spes_sync.codec import encode
from spes_sync.frames import MAX_CHUNK_BYTES, iter_chunks
from spes_sync.hashes import PayloadHash
from spes_sync.manifest import Manifest, TensorSpec
from spes_sync.payloads import all_in, payload_bytes
from spes_sync.quantize import Codec, decode, encode_with_residual, encoded_bytes

PATIENCE_SECONDS = 600.0
_OPTIONS = (("grpc.max_receive_message_length", 4 << 20),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """A model: MiB of the shared part and of each expert, one expert a peer."""

    shared: int
    expert: int
    num_peers: int = 4
    tensor_mib: int = 4

    @property
    def manifest(self) -> Manifest:
        shape = (self.tensor_mib * 256, 1024)
        shared = [
            TensorSpec(name=f"shared.{index:02}", shape=shape)
            for index in range(self.shared // self.tensor_mib)
        ]
        experts = [
            TensorSpec(name=f"layers.{index:02}.experts.{e}.w1", shape=shape, expert=e)
            for e in range(self.num_peers)
            for index in range(self.expert // self.tensor_mib)
        ]
        return Manifest((*shared, *experts))


@dataclass(frozen=True, slots=True, kw_only=True)
class WirePeer:
    """What a peer process is told."""

    number: int
    address: str
    ca_file: Path
    token: str
    sizes: Sizes
    codec: Codec

    @property
    def name(self) -> str:
        return f"peer-{self.number}.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTimes:
    """One peer's round; times of the machine's monotonic clock."""

    started: float
    pushed: float
    committed: float
    ended: float
    bytes_up: int
    bytes_down: int


def run_wire_peer(peer: WirePeer, line: Connection) -> None:
    """Join, seed if asked to, then one round for each word from the parent, until None."""
    process = _Process(peer)
    line.send("ready")
    while (word := line.recv()) is not None:
        line.send(process.seed() if word == "seed" else process.round())
    process.close()


class _Process:
    def __init__(self, peer: WirePeer) -> None:
        self._peer, self._manifest = peer, peer.sizes.manifest
        self._tensors = self._manifest.trained_by([peer.number])
        credentials = grpc.ssl_channel_credentials(peer.ca_file.read_bytes())
        self._channel = grpc.secure_channel(peer.address, credentials, _OPTIONS)
        self._stub = sync_pb2_grpc.SyncStub(self._channel)
        self._reply = self._stub.Join(
            sync_pb2.JoinRequest(peer=peer.name, token=peer.token, protocol=1), timeout=60
        )
        self._metadata = (("spes-session", self._reply.session_key),)
        self._outgoing: queue.Queue[sync_pb2.PeerEvent | None] = queue.Queue()
        self._say(heartbeat=sync_pb2.Heartbeat(version=-1))
        self._events = self._stub.Session(iter(self._outgoing.get, None), metadata=self._metadata)
        random = np.random.default_rng(peer.number)
        shape = self._tensors[0].shape
        self._delta = (1e-3 * random.standard_normal(shape)).astype(np.float32)
        lossy = peer.codec is not Codec.FP32
        self._owed = {t.name: np.zeros(shape, np.float32) for t in self._tensors if lossy}
        self._out = np.empty(shape, np.float32)
        self._open: sync_pb2.RoundOpen | None = None

    def seed(self) -> str:
        """Push zeros as version 0 if this is the peer to do it, and say that it is held."""
        if self._peer.number == 0:
            self._hear("seed_wanted")
            zeros = encode(np.zeros(self._tensors[0].shape, np.float32))
            header = sync_pb2.PushHeader(
                key=self._key(sync_pb2.RoundOpen(base_version=-1)),
                kind=sync_pb2.SEED,
                codec=sync_pb2.FP32,
                total_bytes=self._manifest.num_bytes,
                tensors=self._manifest.to_proto().tensors,
            )
            self._push(header, (zeros for _ in self._manifest))
        self._hear("committed")
        self._say(caught_up=sync_pb2.CaughtUp(version=0))
        return "seeded"

    def round(self) -> RoundTimes:
        """Push, wait for the commit, pull."""
        opened = self._hear("round_open").round_open
        codecs = all_in(self._peer.codec, self._tensors)
        header = sync_pb2.PushHeader(
            key=self._key(opened),
            kind=sync_pb2.DELTA,
            codec=self._peer.codec.wire,
            total_bytes=payload_bytes(self._tensors, codecs),
            steps=1,
            tokens=16,
            loss=1.0,
            tensors=[tensor.to_proto() for tensor in self._tensors],
        )
        started = time.monotonic()
        self._push(header, self._encoded())
        pushed = time.monotonic()
        self._hear("committed")
        committed = time.monotonic()
        bytes_down = self._pull(opened.base_version)
        ended = time.monotonic()
        self._say(heartbeat=sync_pb2.Heartbeat(version=opened.base_version + 1))
        return RoundTimes(
            started=started,
            pushed=pushed,
            committed=committed,
            ended=ended,
            bytes_up=header.total_bytes,
            bytes_down=bytes_down,
        )

    def close(self) -> None:
        self._outgoing.put(None)
        self._channel.close()

    def _encoded(self) -> Iterator[memoryview | bytearray]:
        codec = self._peer.codec
        for tensor in self._tensors:
            if codec is Codec.FP32:
                yield encode(self._delta)
                continue
            data = bytearray(encoded_bytes(codec, self._delta.size))
            sent = encode_with_residual(codec, self._delta, self._owed[tensor.name], data)
            self._owed[tensor.name] = sent.residual
            yield data

    def _push(self, header: sync_pb2.PushHeader, buffers: Iterator[memoryview | bytearray]) -> None:
        def parts() -> Iterator[sync_pb2.PushPart]:
            tensors = self._manifest.select(header.tensors)
            digest = PayloadHash(tensors, all_in(Codec.of_wire(header.codec), tensors))
            yield sync_pb2.PushPart(header=header)
            yield from iter_chunks(sync_pb2.PushPart, _hashed(buffers, digest))
            yield sync_pb2.PushPart(end=sync_pb2.End(sha256=digest.hexdigest()))

        reply = self._stub.Push(parts(), metadata=self._metadata, timeout=PATIENCE_SECONDS)
        assert reply.verdict == sync_pb2.VERIFIED, reply

    def _pull(self, have: int) -> int:
        request = sync_pb2.PullRequest(have_version=have, want_version=have + 1)
        received, pending = 0, bytearray()
        header, digest = sync_pb2.PullHeader(), PayloadHash((), {})
        for part in self._stub.Pull(request, metadata=self._metadata, timeout=PATIENCE_SECONDS):
            if part.HasField("header"):
                header = part.header
                tensors = self._manifest.select(header.tensors)
                digest = PayloadHash(tensors, all_in(Codec.of_wire(header.codec), tensors))
            elif part.HasField("chunk"):
                data = part.chunk.data
                assert zlib.crc32(data) == part.chunk.crc32
                digest.update(data)
                received += len(data)
                if header.codec != sync_pb2.FP32:
                    pending += data
                    self._decode(pending)
            else:
                assert digest.hexdigest() == part.end.sha256
        return received

    def _decode(self, pending: bytearray) -> None:
        size = encoded_bytes(self._peer.codec, self._out.size)
        if len(pending) >= size:
            decode(self._peer.codec, bytes(pending[:size]), self._out)
            del pending[:size]

    def _key(self, opened: sync_pb2.RoundOpen) -> sync_pb2.PushKey:
        return sync_pb2.PushKey(
            job_uid=self._reply.job_uid,
            incarnation=self._reply.incarnation,
            peer=self._peer.name,
            round=opened.round,
            base_version=opened.base_version,
            epoch=opened.epoch,
            part=sync_pb2.ALL,
        )

    def _say(self, **event: object) -> None:
        self._outgoing.put(sync_pb2.PeerEvent(**event))  # type: ignore[arg-type]

    def _hear(self, kind: str) -> sync_pb2.ServerEvent:
        for event in self._events:
            if event.WhichOneof("event") == kind:
                return event
        raise AssertionError(f"the stream ended before {kind}")


def _hashed(buffers: Iterator[memoryview | bytearray], digest: PayloadHash) -> Iterator[memoryview]:
    for buffer in buffers:
        digest.update(buffer)
        yield memoryview(buffer)


# The floor.


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """What the processes of the floor are told."""

    key: bytes
    certificate: bytes
    ca: bytes
    secure: bool
    directory: Path
    up_bytes: int
    down_bytes: int
    model_bytes: int
    num_peers: int = 4


class _FloorServicer(sync_pb2_grpc.SyncServicer):
    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._arrived = Barrier(floor.num_peers, action=self._write)
        self._piece = os.urandom(MAX_CHUNK_BYTES)

    def Push(self, parts, context):  # noqa: N802, ARG002 - gRPC's name and signature
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part.chunk.data)
        self._arrived.wait(PATIENCE_SECONDS)
        return sync_pb2.PushReply(verdict=sync_pb2.VERIFIED)

    def Pull(self, request, context):  # noqa: N802, ARG002 - gRPC's name and signature
        digest = hashlib.sha256()
        for _ in range(self._floor.down_bytes // MAX_CHUNK_BYTES):
            digest.update(self._piece)
            part = sync_pb2.PullPart()
            part.chunk.data = self._piece
            yield part

    def _write(self) -> None:
        with (self._floor.directory / "floor.bin").open("wb") as file:
            for _ in range(self._floor.model_bytes // MAX_CHUNK_BYTES):
                file.write(self._piece)
            file.flush()
            os.fsync(file.fileno())


def run_floor_server(floor: Floor, line: Connection) -> None:
    """Serve until the parent says so."""
    server = grpc.server(ThreadPoolExecutor(2 * floor.num_peers))
    sync_pb2_grpc.add_SyncServicer_to_server(_FloorServicer(floor), server)
    if floor.secure:
        credentials = grpc.ssl_server_credentials([(floor.key, floor.certificate)])
        line.send(server.add_secure_port("localhost:0", credentials))
    else:
        line.send(server.add_insecure_port("localhost:0"))
    server.start()
    line.recv()
    server.stop(None).wait()


def run_floor_peer(floor: Floor, port: int, line: Connection) -> None:
    """One round for each word from the parent, until None."""
    address = f"localhost:{port}"
    channel = (
        grpc.secure_channel(address, grpc.ssl_channel_credentials(floor.ca))
        if floor.secure
        else grpc.insecure_channel(address)
    )
    piece = os.urandom(MAX_CHUNK_BYTES)

    def parts() -> Iterator[sync_pb2.PushPart]:
        digest = hashlib.sha256()
        for _ in range(floor.up_bytes // MAX_CHUNK_BYTES):
            digest.update(piece)
            part = sync_pb2.PushPart()
            part.chunk.data = piece
            yield part

    with channel:
        stub = sync_pb2_grpc.SyncStub(channel)
        line.send("ready")
        while line.recv() is not None:
            started = time.monotonic()
            stub.Push(parts(), timeout=PATIENCE_SECONDS)
            committed = time.monotonic()
            digest, received = hashlib.sha256(), 0
            for part in stub.Pull(sync_pb2.PullRequest(), timeout=PATIENCE_SECONDS):
                data = part.chunk.data
                digest.update(data)
                received += len(data)
            ended = time.monotonic()
            line.send(
                RoundTimes(
                    started=started,
                    pushed=committed,
                    committed=committed,
                    ended=ended,
                    bytes_up=floor.up_bytes,
                    bytes_down=received,
                )
            )
