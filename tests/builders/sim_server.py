"""The server of the simulator: versions, a plan, one open round, a ledger of what is in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from builders.owed_book import OwedBook
from builders.peer_events import committed, opened, plan, reply
from builders.toy_learner import PSI
from spes_proto.v1 import sync_pb2
from spes_sync.bases import NO_VERSION
from spes_sync.client import actions as act
from spes_sync.codec import Array, tensor_sha256
from spes_sync.manifest import SHARED, Manifest, TensorSpec
from spes_sync.quantize import Codec, Sent, encode_with_residual, encoded_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """A push that the server keeps for the open round."""

    process: int
    sha256: str
    epoch: int
    values: dict[str, Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """How a version came about."""

    pushes: dict[str, Pushed]
    counted: dict[str, frozenset[str]]  # peer -> tensors that count
    delta: dict[str, Array]
    event: sync_pb2.ServerEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A peer's checkpoint."""

    version: int
    owned: dict[int, int]
    weights: dict[str, Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFrame:
    """An answer to a Pull that never was a file."""

    version: int
    absolute: bool
    values: dict[str, Array]
    manifest: Manifest

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        return tuple(tensor for tensor in self.manifest if tensor.name in self.values)

    def read(self) -> Iterator[tuple[TensorSpec, Array]]:
        for tensor in self.tensors:
            yield tensor, self.values[tensor.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How both directions are coded, and where peers keep what they owe."""

    codec: Codec
    directory: Path


@dataclass
class Ledger:
    """Where every unit of local progress is, per tensor, but for what live peers still hold."""

    stepped: Counter[str] = field(default_factory=Counter)
    counted: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)


def amount_of(value: Array) -> int:
    """The number that the ledger follows."""
    return int(value[-1])


def coded(codec: Codec, value: Array, owed: Array) -> Sent:
    """What arrives of a value and what is owed, and what is owed then."""
    out = bytearray(encoded_bytes(codec, value.size))
    return encode_with_residual(codec, value, owed, out)


class SimServer:
    """Versions, the plan and at most one open round. Shared deltas are added with weight 1."""

    def __init__(
        self, manifest: Manifest, owners: dict[int, tuple[str, int]], peers: list[str], link: Link
    ) -> None:
        self.manifest, self.link = manifest, link
        self.ledger = Ledger()
        self.books = {peer: OwedBook(self.ledger.dropped) for peer in peers}
        self.saved: dict[str, Saved] = {}
        self.owed = np.zeros(manifest[PSI].shape, np.float32)  # of the shared one
        self.served = {t.name: np.zeros(t.shape, np.float32) for t in manifest}
        self.version = 0
        self.made: dict[int, Made] = {}
        self.owners, self.peers, self.epoch = owners, peers, 1
        self.active = (dict(owners), list(peers), 1)
        self.pushes: dict[str, Pushed] | None = None
        self.processes: Counter[str] = Counter()
        self.max_missed = 1  # commits that peers carry shared progress over

    @property
    def plan_event(self) -> sync_pb2.ServerEvent:
        owners, peers, epoch = self.active
        return plan(owners, epoch=epoch, peers=peers)

    @property
    def open_event(self) -> sync_pb2.ServerEvent:
        return opened(self.version + 1, epoch=self.active[2])

    def activate(self) -> None:
        self.active = (dict(self.owners), list(self.peers), self.epoch)

    def judge(self, push: act.Push, peer: str, pushed: Pushed) -> sync_pb2.PushReply:
        _, peers, _ = self.active
        if self.pushes is None or push.base_version != self.version:
            return reply("REBASE", reason="OLD_BASE")
        if peer in self.pushes:
            return reply("ALREADY_HAVE")
        if peer not in peers:
            return reply("REFUSED", reason="NOT_EXPECTED")
        self.pushes[peer] = pushed
        foreign = [
            tensor.expert
            for tensor in self.manifest
            if tensor.name in pushed.values and not self._counts(tensor, peer, pushed.epoch)
        ]
        return reply("PARTLY", dropped_experts=foreign) if foreign else reply("VERIFIED")

    def commit(self) -> Made:
        assert self.pushes is not None
        delta: dict[str, Array] = {}
        counted: dict[str, set[str]] = {peer: set() for peer in self.pushes}
        for peer, pushed in sorted(self.pushes.items()):
            for name, value in pushed.values.items():
                if self._counts(self.manifest[name], peer, pushed.epoch):
                    delta[name] = delta[name] + value if name in delta else value
                    counted[peer].add(name)
                    self.ledger.counted[name] += amount_of(value)
        if PSI in delta:
            sent = coded(self.link.codec, delta[PSI], self.owed)
            delta[PSI], self.owed = sent.decoded, sent.residual
        for name, value in delta.items():
            self.served[name] = self.served[name] + value
        self.version += 1
        hashes = {name: tensor_sha256(value) for name, value in self.served.items()}
        event = committed(
            self.version, *((p, x.sha256) for p, x in self.pushes.items()), hashes=hashes
        )
        made = Made(
            pushes=self.pushes,
            counted={peer: frozenset(names) for peer, names in counted.items()},
            delta=delta,
            event=event,
        )
        self.made[self.version], self.pushes = made, None
        return made

    def pull(self, have: int, peer: str, process: int, *, full: bool) -> MemoryFrame:
        if full or have == NO_VERSION:
            values = {name: value.copy() for name, value in self.served.items()}
            return MemoryFrame(
                version=self.version, absolute=True, values=values, manifest=self.manifest
            )
        made = self.made[have + 1]
        own = made.pushes.get(peer)
        mine = made.counted[peer] - {PSI} if own and own.process == process else frozenset()
        values = {name: value for name, value in made.delta.items() if name not in mine}
        return MemoryFrame(version=have + 1, absolute=False, values=values, manifest=self.manifest)

    def counted_pushes(self) -> dict[str, dict[int, frozenset[str]]]:
        """SHA-256 -> version -> tensors of that push that are in it."""
        found: dict[str, dict[int, frozenset[str]]] = {}
        for version, made in self.made.items():
            for peer, pushed in made.pushes.items():
                found.setdefault(pushed.sha256, {})[version] = made.counted[peer]
        return found

    def _counts(self, tensor: TensorSpec, peer: str, epoch: int) -> bool:
        owner, granted = self.active[0].get(tensor.expert, ("", 0))
        return tensor.expert == SHARED or (owner == peer and epoch >= granted)
