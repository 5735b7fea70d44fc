"""States of the round machine, a few events in, for tests that need one."""

from __future__ import annotations

from collections.abc import Iterable

from spes_proto.v1 import sync_pb2
from spes_sync.plan import Grant, PeerId, Plan
from spes_sync.rounds import Push, Rules, State, advance
from spes_sync.rounds import events as ev

A, B, C, D = PeerId("a.0"), PeerId("b.0"), PeerId("c.0"), PeerId("d.0")


def rules(**changes: object) -> Rules:
    given = {"max_tokens": 1000, "min_members": 1, "quorum": 0.66, "timeout": 60.0}
    return Rules(**{**given, "unreachable_after": 40.0, **changes})  # type: ignore[arg-type]


def plan(epoch: int, owners: dict[int, str], *, granted: dict[int, int] | None = None) -> Plan:
    """A plan; an expert's grant is the plan's own epoch unless `granted` says otherwise."""
    given = granted or {}
    return Plan(
        epoch=epoch,
        peers=tuple(sorted(PeerId(peer) for peer in set(owners.values()))),
        owners={e: Grant(peer=PeerId(p), epoch=given.get(e, epoch)) for e, p in owners.items()},
    )


def push(epoch: int = 1, *, experts: Iterable[int] = (), **changes: object) -> Push:
    given = {"part": sync_pb2.ALL, "sha256": "ab", "steps": 2, "tokens": 10}
    return Push(epoch=epoch, experts=tuple(experts), **{**given, **changes})  # type: ignore[arg-type]


class Machine:
    """A state that remembers, so that a test reads as a story. `now` goes only forward."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.now = 0.0
        self.effects: tuple[ev.Effect, ...] = ()

    def do(self, event: ev.Event, *, after: float = 0.0) -> Machine:
        self.now += after
        step = advance(self.state, event, self.now)
        self.state, self.effects = step.state, step.effects
        return self

    def tick(self, seconds: float) -> Machine:
        return self.do(ev.Tick(), after=seconds)

    def hear(self, *peers: PeerId) -> Machine:
        for peer in peers:
            self.do(ev.Heard(peer=peer, version=self.state.version))
        return self

    def verify(self, peer: PeerId, pushed: Push | None = None) -> Machine:
        return self.do(ev.Verified(peer=peer, push=pushed or push(self.state.active.epoch)))

    def did(self, kind: type) -> list:
        """The last event's effects of this kind."""
        return [effect for effect in self.effects if isinstance(effect, kind)]


def waiting(*peers: PeerId, **changes: object) -> Machine:
    """Seeded; these peers are live and caught up; no plan yet."""
    machine = Machine(State(rules=rules(**changes), seed_peer=peers[0] if peers else None))
    machine.do(ev.Seeded())
    for peer in peers:
        machine.do(ev.CaughtUp(peer=peer, version=0))
    return machine


def opened(*peers: PeerId, **changes: object) -> Machine:
    """Round 1 is open among these peers; peer number i owns expert i, under epoch 1."""
    machine = waiting(*peers, **changes)
    owners = {index: str(peer) for index, peer in enumerate(peers)}
    return machine.do(ev.PlanApplied(plan=plan(1, owners), rules=machine.state.rules))
