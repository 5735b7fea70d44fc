"""A sync server and its peers in one thread, with a ledger of every local step.

The peers are the real machine, bases and holdings; server and wire are stand-ins of a few lines, so
that thousands of histories with late, lost, refused and repeated pushes, crashes and moved experts
run in seconds. All values are whole numbers that float32 holds exactly: a sum is right or wrong.

The ledger follows the rules in words of its own: what a peer holds beyond its base, what versions
contain, and what was dropped and why. Whatever is nowhere was lost; what is in two places counted
twice.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from builders.peer_events import committed, opened, plan, reply, stepped
from builders.toy_learner import PSI, ArrayWeights, phi, toy_manifest
from spes_proto.v1 import sync_pb2
from spes_sync.bases import NO_VERSION
from spes_sync.client import actions as act
from spes_sync.client.holdings import Holdings
from spes_sync.client.machine import Cadence, PeerMachine
from spes_sync.codec import Array, tensor_sha256
from spes_sync.manifest import SHARED, Manifest, TensorSpec

CADENCE = Cadence(
    every_steps=2, every_seconds=None, batch_tokens=8, sequence_tokens=4, save_every_rounds=1
)
# A peer that has heard everything settles in fewer actions than this.
_MOST_ACTIONS = 200
# What may happen to a push on its way.
ARRIVES, ANSWER_LOST, LOST, REFUSED = "arrives", "answer lost", "lost", "refused"


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


@dataclass
class Ledger:
    """Where every unit of local progress is, per tensor, but for what live peers still hold."""

    stepped: Counter[str] = field(default_factory=Counter)
    counted: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)


class SimServer:
    """Versions, the plan and at most one open round. Shared deltas are added with weight 1."""

    def __init__(
        self, manifest: Manifest, owners: dict[int, tuple[str, int]], peers: list[str]
    ) -> None:
        self.manifest = manifest
        self.ledger = Ledger()
        self.served = {t.name: np.zeros(t.shape, np.float32) for t in manifest}
        self.version = 0
        self.made: dict[int, Made] = {}
        self.owners, self.peers, self.epoch = owners, peers, 1
        self.active = (dict(owners), list(peers), 1)
        self.pushes: dict[str, Pushed] | None = None
        self.processes: Counter[str] = Counter()
        self.orphans: set[tuple[str, int]] = set()  # pushed and crashed

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
                    self.ledger.counted[name] += int(value[0])
                elif (peer, pushed.process) in self.orphans:
                    self.ledger.dropped[name] += int(value[0])
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

    def _counts(self, tensor: TensorSpec, peer: str, epoch: int) -> bool:
        owner, granted = self.active[0].get(tensor.expert, ("", 0))
        return tensor.expert == SHARED or (owner == peer and epoch >= granted)


class SimPeer:
    """One peer process: real decisions and arithmetic, invented steps."""

    def __init__(self, name: str, server: SimServer) -> None:
        server.processes[name] += 1
        self.name, self.process, self.server = name, server.processes[name], server
        self.weights = ArrayWeights(server.manifest)
        self.machine = PeerMachine(name, CADENCE, owned={})
        self.holdings = Holdings(self.weights, version=NO_VERSION, owned=())
        self.inbox: list[sync_pb2.ServerEvent | int] = []  # a number: a Session begins so
        self.held: Counter[str] = Counter()  # what the rules say is w - B
        self.pushed: dict[str, Array] = {}  # what the server got of it
        self.missed = 0
        self.named_dropped: frozenset[int] = frozenset()
        self.connect()

    def connect(self) -> None:
        """What a server says when a Session begins."""
        server = self.server
        have = self.machine.version
        self.inbox += [have, server.plan_event]
        if have + 1 in server.made:
            self.inbox.append(server.made[have + 1].event)
        self.inbox.append(server.made[server.version].event if server.version else committed(0))
        if server.pushes is not None:
            self.inbox.append(server.open_event)

    def hear(self) -> None:
        for event in self.inbox:
            if isinstance(event, int):
                self.machine.connected(event)
            else:
                self.machine.observe(event)
        self.inbox.clear()

    def do_next(self, *, amount: int, push_goes: str, full_pull: bool) -> act.Action:
        """Do what the machine asks for, and check the weights against the ledger."""
        action = self.machine.next(0)
        match action:
            case act.Step():
                self._step(amount)
            case act.Push():
                self._push(action, push_goes)
            case act.Rebase():
                self._rebase(full=full_pull)
            case act.Adopt():
                self._adopt(action)
            case act.Discard():
                self._drop(list(self.held))
                self.holdings.reset()
                self.machine.discarded()
            case act.Save():
                self.machine.saved()
            case act.CatchUp():
                self.machine.announced()
        self.check()
        return action

    def crash(self) -> None:
        """The process is gone. What the server has of it may still count."""
        counted = self._counted()
        if counted is None and self._in_open_round():
            self.server.orphans.add((self.name, self.process))
        else:
            self._drop([name for name in self.held if name not in (counted or ())])
        self.held.clear()

    def check(self) -> None:
        """What the peer would push is what the rules say it holds."""
        trained = self.server.manifest.trained_by(self.machine.owned)
        if self.machine.version == NO_VERSION:
            return
        for name, value in self.holdings.progress(trained):
            assert int(value[0]) == self.held[name], (self.name, name)

    def _step(self, amount: int) -> None:
        for tensor in self.server.manifest.trained_by(self.machine.owned):
            self.weights.values[tensor.name] += amount
            self.held[tensor.name] += amount
            self.server.ledger.stepped[tensor.name] += amount
        self.machine.stepped(stepped())

    def _push(self, action: act.Push, goes: str) -> None:
        tensors = self.server.manifest.trained_by(self.machine.owned)
        values = {name: np.array(value) for name, value in self.holdings.progress(tensors)}
        self.pushed = values
        text = "".join(f"{name}{value[0]}" for name, value in values.items())
        sha256 = hashlib.sha256(f"{self.name}{self.process}{text}".encode()).hexdigest()
        self.machine.offering(action, sha256)
        if goes == LOST:
            return
        already = self.server.pushes is not None and self.name in self.server.pushes
        if goes == REFUSED and not already and action.base_version == self.server.version:
            self.machine.pushed(action, reply("REFUSED", reason="NOT_FINITE"))
            return
        pushed = Pushed(process=self.process, sha256=sha256, epoch=action.epoch, values=values)
        answer = self.server.judge(action, self.name, pushed)
        if goes == ARRIVES:
            self.machine.pushed(action, answer)
            self.named_dropped |= frozenset(answer.dropped_experts)

    def _rebase(self, *, full: bool) -> None:
        have = self.machine.version
        frame = self.server.pull(have, self.name, self.process, full=full)
        self._settle(frame.version)
        fate = self.machine.fate(frame.version, absolute=frame.absolute)
        sent = [(self.server.manifest[n], v) for n, v in self.pushed.items()]
        self.holdings.rebase(frame, fate, sent)  # type: ignore[arg-type]  # never was a file
        self.machine.rebased(frame.version, fate)

    def _settle(self, version: int) -> None:
        """The rules, in words of their own: what is held after moving to `version`."""
        counted = self._counted()
        if counted is not None:
            self._drop([name for name in self.held if name not in counted])
            self.held.clear()
        self.missed += version - self.machine.version
        shared_goes = self.missed > 1 or self.name not in self.machine.plan.peers
        planned = {
            row.expert: row.granted_epoch
            for row in self.machine.plan.owners
            if row.peer == self.name
        }
        for name in list(self.held):
            expert = self.server.manifest[name].expert
            lost = planned.get(expert) != self.machine.owned.get(expert)
            if shared_goes if expert == SHARED else lost or expert in self.named_dropped:
                self._drop([name])
        if not self.held[PSI]:
            self.missed = 0
        self.named_dropped = frozenset()

    def _adopt(self, action: act.Adopt) -> None:
        for expert in action.lost:
            self._drop([phi(expert)])
            self.holdings.lose(expert)
        for expert in action.gained:
            self.holdings.gain(expert)
        self.machine.adopted(action.owned)

    def _drop(self, names: list[str]) -> None:
        for name in names:
            self.server.ledger.dropped[name] += self.held.pop(name, 0)

    def _in_open_round(self) -> bool:
        pushed = (self.server.pushes or {}).get(self.name)
        return pushed is not None and pushed.process == self.process

    def _counted(self) -> frozenset[str] | None:
        """Tensors of this process's push that its base's next version contains; None: none."""
        made = self.server.made.get(self.machine.version + 1)
        pushed = made.pushes.get(self.name) if made else None
        if made is None or pushed is None or pushed.process != self.process:
            return None
        return made.counted[self.name]


class Simulation:
    """A few peers, one server, and everything that may happen to them."""

    def __init__(self, num_peers: int = 3, num_experts: int = 4) -> None:
        names = [f"peer-{index}" for index in range(num_peers)]
        owners = {expert: (names[expert % num_peers], 1) for expert in range(num_experts)}
        self.server = SimServer(toy_manifest(num_experts), owners, list(names))
        self.peers = [SimPeer(name, self.server) for name in names]

    def tell(self, event: sync_pb2.ServerEvent) -> None:
        for peer in self.peers:
            peer.inbox.append(event)

    def open(self) -> None:
        """Open the next round under the newest plan."""
        if self.server.pushes is None:
            self.server.pushes = {}
            self.server.activate()
            self.tell(self.server.plan_event)
            self._tell_open()

    def commit(self) -> None:
        """Close the open round with what there is."""
        if self.server.pushes:
            self.tell(self.server.commit().event)

    def reopen(self) -> None:
        """The open round was held; it is opened again under the newest plan."""
        server = self.server
        if server.pushes is not None and server.active[2] != server.epoch:
            server.activate()
            self.tell(server.plan_event)
            self._tell_open()

    def move(self, expert: int, to: int) -> None:
        """The newest plan gives an expert to another peer, or again to the same."""
        if self.peers[to].name not in self.server.peers:
            return
        self.server.epoch += 1
        self.server.owners[expert] = (self.peers[to].name, self.server.epoch)

    def remove(self, index: int) -> None:
        """The newest plan leaves a peer out; its experts are parked. It hears so at once."""
        server, name = self.server, self.peers[index].name
        if name not in server.peers:
            return
        server.epoch += 1
        server.peers.remove(name)
        server.owners = {e: row for e, row in server.owners.items() if row[0] != name}
        event = plan(server.owners, epoch=server.epoch, peers=server.peers)
        self.peers[index].inbox.append(event)

    def place_again(self, index: int) -> None:
        """A peer that was left out is placed again."""
        if self.peers[index].name not in self.server.peers:
            self.server.epoch += 1
            self.server.peers.append(self.peers[index].name)

    def restart(self, index: int) -> None:
        """A peer crashes and a new process joins."""
        peer = self.peers[index]
        peer.crash()
        self.peers[index] = SimPeer(peer.name, self.server)

    def finish(self) -> None:
        """Commit what is pushed and let every peer settle on the result."""
        self.commit()
        for peer in self.peers:
            peer.hear()
            for _ in range(_MOST_ACTIONS):
                if isinstance(peer.machine.next(0), act.Step | act.Push | act.Wait):
                    break
                peer.do_next(amount=0, push_goes=LOST, full_pull=False)
            else:
                raise AssertionError(f"{peer.name} never settles: {peer.machine.next(0)}")

    def _tell_open(self) -> None:
        for peer in self.peers:
            if peer.name in self.server.active[1]:
                peer.inbox.append(self.server.open_event)
