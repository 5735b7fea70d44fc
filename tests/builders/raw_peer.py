"""A peer at the level of the wire: sends exactly what a test says, checks nothing by itself."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import grpc
import numpy as np
from builders.sync_server import DEADLINE_SECONDS, JOB_UID, TestServer, eventually
from spes_proto.v1 import sync_pb2, sync_pb2_grpc
from spes_sync.codec import encode, tensor_sha256
from spes_sync.frames import iter_chunks
from spes_sync.hashes import root_sha256
from spes_sync.manifest import SHARED, Manifest, TensorSpec

# Two layers' worth of names in miniature: one shared tensor, four experts of one tensor each.
MANIFEST = Manifest(
    (
        TensorSpec(name="embedding.weight", shape=(4, 3)),
        *(TensorSpec(name=f"layers.0.experts.{e}.w1", shape=(2, 3), expert=e) for e in range(4)),
    )
)
# The same where every peer trains everything: all of it is shared.
REPLICATED = Manifest(tuple(replace(tensor, expert=SHARED) for tensor in MANIFEST))


def zeros() -> dict[str, np.ndarray]:
    """A model of MANIFEST."""
    return {tensor.name: np.zeros(tensor.shape, np.float32) for tensor in MANIFEST}


def delta(experts: Iterable[int], value: float, *, shared: bool = True) -> dict[str, np.ndarray]:
    """A push of these experts in which every value is the same."""
    wanted = [t for t in MANIFEST.trained_by(experts) if shared or t.expert >= 0]
    return {t.name: np.full(t.shape, value, np.float32) for t in wanted}


class RawPeer:
    """One process of a peer, after its Join."""

    def __init__(self, server: TestServer, name: str, token: str) -> None:
        credentials = grpc.ssl_channel_credentials(server.tls.ca_file.read_bytes())
        self.name = name
        self.manifest = REPLICATED if server.hub.replicated else MANIFEST
        self.channel = grpc.secure_channel(server.address, credentials)
        self.stub = sync_pb2_grpc.SyncStub(self.channel)
        self.token = token
        self.reply = sync_pb2.JoinReply()
        self._outgoing: queue.Queue[sync_pb2.PeerEvent | None] = queue.Queue()
        self._call: grpc.Call | None = None
        self.seen: list[sync_pb2.ServerEvent] = []

    def join(self, *, protocol: int = 1) -> sync_pb2.JoinReply:
        self.reply = self.stub.Join(
            sync_pb2.JoinRequest(peer=self.name, token=self.token, protocol=protocol),
            timeout=DEADLINE_SECONDS,
        )
        self.token = self.reply.next_token
        return self.reply

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("spes-session", self.reply.session_key),)

    # Session.

    def connect(self, version: int = -1, *, caught_up: bool = False) -> None:
        """Open the event stream (again)."""
        self.disconnect()
        self._outgoing = queue.Queue()
        outgoing = self._outgoing
        self.say(heartbeat=sync_pb2.Heartbeat(version=version))
        if caught_up:
            self.say(caught_up=sync_pb2.CaughtUp(version=version))
        self._call = self.stub.Session(
            iter(outgoing.get, None), metadata=self.metadata, timeout=DEADLINE_SECONDS
        )

    def disconnect(self) -> None:
        if self._call is not None:
            self._outgoing.put(None)
            self._call.cancel()
            self._call = None

    def say(self, **event: object) -> None:
        self._outgoing.put(sync_pb2.PeerEvent(**event))  # type: ignore[arg-type]

    def hear(self, kind: str) -> object:
        """Read events up to the next of this kind; a version that is committed is held at once."""
        assert self._call is not None
        for event in self._call:  # type: ignore[attr-defined]
            self.seen.append(event)
            if event.HasField("committed"):
                self.say(heartbeat=sync_pb2.Heartbeat(version=event.committed.version))
            if event.WhichOneof("event") == kind:
                return getattr(event, kind)
        raise AssertionError(f"the stream ended before {kind}")

    # Push and Pull.

    def header(self, values: dict[str, np.ndarray], **changes: object) -> sync_pb2.PushHeader:
        """The header of a DELTA for the round that was opened last; `changes` override."""
        opened = next(
            (e.round_open for e in reversed(self.seen) if e.HasField("round_open")),
            sync_pb2.RoundOpen(),
        )
        tensors = [self.manifest[name] for name in sorted(values)]
        key = {
            "job_uid": JOB_UID,
            "incarnation": 1,
            "peer": self.name,
            "round": opened.round,
            "base_version": opened.base_version,
            "epoch": opened.epoch,
            "part": sync_pb2.ALL,
        }
        given: dict[str, object] = {
            "kind": sync_pb2.DELTA,
            "codec": sync_pb2.FP32,
            "total_bytes": sum(tensor.num_bytes for tensor in tensors),
            "steps": 2,
            "tokens": 32,
            "loss": 1.0,
            "tensors": [tensor.to_proto() for tensor in tensors],
        }
        for name, value in changes.items():
            (key if name in key else given)[name] = value
        return sync_pb2.PushHeader(key=sync_pb2.PushKey(**key), **given)  # type: ignore[arg-type]

    def push(self, values: dict[str, np.ndarray], **changes: object) -> sync_pb2.PushReply:
        return self.push_parts(parts(self.header(values, **changes), values))

    def push_parts(self, every: Iterable[sync_pb2.PushPart]) -> sync_pb2.PushReply:
        return self.stub.Push(iter(every), metadata=self.metadata, timeout=DEADLINE_SECONDS)

    def seed(self) -> sync_pb2.PushReply:
        return self.push(zeros(), kind=sync_pb2.SEED, base_version=-1, round=0)

    def pull(
        self, have: int, want: int = 0, **request: object
    ) -> tuple[sync_pb2.PullHeader, dict[str, np.ndarray]]:
        call = self.stub.Pull(
            sync_pb2.PullRequest(have_version=have, want_version=want, **request),  # type: ignore[arg-type]
            metadata=self.metadata,
            timeout=DEADLINE_SECONDS,
        )
        header, data = sync_pb2.PullHeader(), b""
        for part in call:
            if part.HasField("header"):
                header = part.header
            data += part.chunk.data
        values = {}
        for tensor in header.tensors:
            size = 4 * int(np.prod(tensor.shape))
            values[tensor.name] = np.frombuffer(data[:size], "<f4").reshape(tensor.shape)
            data = data[size:]
        return header, values

    def close(self) -> None:
        self.disconnect()
        self.channel.close()


def parts(
    header: sync_pb2.PushHeader, values: dict[str, np.ndarray]
) -> Iterator[sync_pb2.PushPart]:
    """The messages of a push."""
    yield sync_pb2.PushPart(header=header)
    ordered = [values[name] for name in sorted(values)]
    yield from iter_chunks(sync_pb2.PushPart, map(encode, ordered))
    yield sync_pb2.PushPart(end=sync_pb2.End(sha256=root_sha256(map(tensor_sha256, ordered))))


@contextmanager
def raw_peers(server: TestServer, *names: str) -> Iterator[list[RawPeer]]:
    """Peers that have joined and are connected; the first has seeded the model."""
    hub = server.hub
    tokens = {name: hub.invite(name) for name in names}
    hub.apply(seed_peer=names[0])
    peers = [RawPeer(server, name, tokens[name]) for name in names]
    try:
        for peer in peers:
            peer.join()
            peer.connect()
        peers[0].hear("seed_wanted")
        assert peers[0].seed().verdict == sync_pb2.VERIFIED
        for peer in peers:
            peer.hear("committed")
            peer.say(caught_up=sync_pb2.CaughtUp(version=0))
        eventually(lambda: all(server.peer(name).caught_up for name in names), "caught up")
        yield peers
    finally:
        for peer in peers:
            peer.close()
