"""A sync server and its peers in one thread, with a ledger of every local step.

The peers are the real machine, bases, holdings and residuals; server and wire are stand-ins of a
few lines, so that thousands of histories with late, lost, refused and repeated pushes, crashes and
moved experts run in seconds. All values are whole numbers that float32 holds exactly, also those
that a codec makes of them: a sum is right or wrong. Each tensor has a large number beside the one
that the ledger follows, so that INT8 has something to drop.

The ledger follows the rules in words of its own: what a peer holds beyond its base, what versions
contain, and what was dropped and why. Whatever is nowhere was lost; what is in two places counted
twice.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace

import numpy as np
from builders.owed_book import Offer
from builders.peer_events import committed, plan, reply, stepped
from builders.sim_server import Link, Pushed, Saved, SimServer, amount_of
from builders.toy_learner import PSI, ArrayWeights, phi, toy_manifest
from safetensors.numpy import load_file
from spes_proto.v1 import sync_pb2
from spes_sync.bases import NO_VERSION
from spes_sync.client import actions as act
from spes_sync.client.holdings import Holdings
from spes_sync.client.machine import Cadence, PeerMachine
from spes_sync.client.residuals import Residuals
from spes_sync.codec import Array
from spes_sync.disk import Disk
from spes_sync.manifest import SHARED
from spes_sync.quantize import decode

CADENCE = Cadence(
    every_steps=2,
    every_seconds=None,
    batch_tokens=8,
    sequence_tokens=4,
    save_every_rounds=1,
    max_missed=1,
)
# A peer that has heard everything settles in fewer actions than this.
_MOST_ACTIONS = 200
NO_FSYNC = Disk(fsync=lambda _: None)
# 127 x 64: a step's large number, and any sum of those, is exact in INT8, and what it leaves of the
# other one is a whole number too.
OUTLIER = 8128
# What may happen to a push on its way.
ARRIVES, ANSWER_LOST, LOST, REFUSED = "arrives", "answer lost", "lost", "refused"


class SimPeer:
    """One peer process: real decisions and arithmetic, invented steps."""

    def __init__(self, name: str, server: SimServer) -> None:
        server.processes[name] += 1
        self.name, self.process, self.server = name, server.processes[name], server
        self.book = server.books[name]
        self.weights = ArrayWeights(server.manifest)
        saved = server.saved.get(name, Saved(version=NO_VERSION, owned={}, weights={}))
        self.weights.write(saved.weights.items())
        cadence = replace(CADENCE, max_missed=server.max_missed)
        self.machine = PeerMachine(name, cadence, version=saved.version, owned=saved.owned)
        self.holdings = Holdings(self.weights, version=saved.version, owned=saved.owned)
        self.residuals = Residuals(server.link.directory / name, server.manifest, 1, NO_FSYNC)
        self.inbox: list[sync_pb2.ServerEvent | int] = []  # a number: a Session begins so
        self.held: Counter[str] = Counter()  # what the rules say is w - B
        self.pushed: dict[str, Array] = {}  # what the server got of it
        self.missed = 0
        self.named_dropped: frozenset[int] = frozenset()
        self.connect()

    def connect(self) -> None:
        """What a server says when a Session begins."""
        server = self.server
        have = self.machine.served.version_to_say(self.machine.version, self.residuals.undecided)
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
                self._save()
            case act.CatchUp():
                self.machine.announced()
        self.check()
        return action

    def crash(self) -> None:
        """The process is gone. What the server has of it counts, or will."""
        if not self._in_open_round() and self._counted() is None:
            self._drop(list(self.held))
        self.held.clear()

    def check(self) -> None:
        """What the peer would push is what the rules say it holds."""
        trained = self.server.manifest.trained_by(self.machine.ownership.owned)
        if self.machine.version == NO_VERSION:
            return
        for name, value in self.holdings.progress(trained):
            assert amount_of(value) == self.held[name], (self.name, name)

    def check_owed(self) -> None:
        """What is on disk is what the rules say is owed."""
        path = self.server.link.directory / self.name / "residuals" / "1" / "residual.safetensors"
        found = {n: amount_of(v) for n, v in load_file(path).items()} if path.exists() else {}
        for name in self.server.manifest.names:
            assert found.get(name, 0) == self.book.owed[name], (self.name, name)

    def _step(self, amount: int) -> None:
        for tensor in self.server.manifest.trained_by(self.machine.ownership.owned):
            self.weights.values[tensor.name] += np.array([OUTLIER, amount], np.float32)
            self.held[tensor.name] += amount
            self.server.ledger.stepped[tensor.name] += amount
        self.machine.stepped(stepped())

    def _push(self, action: act.Push, goes: str) -> None:
        if self.machine.was_removed:
            self.book.forget(self.server.manifest.names)
            self.residuals.clear()
            self.machine.was_removed = False
        sha256 = self._encode(action)
        values = self.pushed
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

    def _encode(self, action: act.Push) -> str:
        """What the server will get, and what is owed if it counts; returns its hash."""
        self.check_owed()
        tensors = self.server.manifest.trained_by(self.machine.ownership.owned)
        codec, deltas = self.server.link.codec, self.holdings.progress(tensors)
        digest = hashlib.sha256(f"{self.name}{self.process}".encode())
        self.pushed = {}
        for tensor, data in zip(
            tensors, self.residuals.encoded(deltas, tensors, codec), strict=True
        ):
            digest.update(data)
            self.pushed[tensor.name] = np.empty(tensor.shape, np.float32)
            decode(codec, data, self.pushed[tensor.name])
        self.residuals.offer(action.base_version, sync_pb2.ALL, digest.hexdigest())
        sent = {name: amount_of(value) for name, value in self.pushed.items()}
        self.book.offer(
            Offer(
                base=action.base_version,
                process=self.process,
                sha256=digest.hexdigest(),
                sent=sent,
                gain={name: self.held[name] - amount for name, amount in sent.items()},
            )
        )
        return digest.hexdigest()

    def _save(self) -> None:
        weights = {name: value.copy() for name, value in self.weights.values.items()}
        self.server.saved[self.name] = Saved(
            version=self.machine.version, owned=dict(self.machine.ownership.owned), weights=weights
        )
        self.machine.saved()

    def _rebase(self, *, full: bool) -> None:
        have = self.machine.version
        frame = self.server.pull(have, self.name, self.process, full=full)
        self._settle(frame.version)
        fate = self.machine.fate(frame.version, absolute=frame.absolute)
        sent = [(self.server.manifest[n], v) for n, v in self.pushed.items()]
        self.holdings.rebase(frame, fate, sent)  # type: ignore[arg-type]  # never was a file
        self.residuals.reach(frame.version, self.machine.served.counted(frame.version))
        self.machine.rebased(frame.version, fate)

    def _settle(self, version: int) -> None:
        """The rules, in words of their own: what is held after moving to `version`."""
        if self._counted() is not None:
            self.held.clear()
        self.book.decide(version, self.server.counted_pushes())
        self.missed += version - self.machine.version
        too_old = self.missed > self.server.max_missed
        shared_goes = too_old or self.name not in self.machine.ownership.plan.peers
        planned = {
            row.expert: row.granted_epoch
            for row in self.machine.ownership.plan.owners
            if row.peer == self.name
        }
        for name in list(self.held):
            expert = self.server.manifest[name].expert
            lost = planned.get(expert) != self.machine.ownership.owned.get(expert)
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
        moved = [*action.lost, *action.gained]
        self.book.forget(phi(expert) for expert in moved)
        self.residuals.drop(self.server.manifest[phi(expert)] for expert in moved)
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

    def __init__(
        self, link: Link, num_peers: int = 3, num_experts: int = 4, *, max_missed: int = 1
    ) -> None:
        names = [f"peer-{index}" for index in range(num_peers)]
        owners = {expert: (names[expert % num_peers], 1) for expert in range(num_experts)}
        self.server = SimServer(toy_manifest(num_experts, size=2), owners, list(names), link)
        self.server.max_missed = max_missed
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
