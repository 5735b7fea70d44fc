"""Machines of a peer in the midst of a round, and the acts that bring them on."""

from __future__ import annotations

from builders.peer_events import ME, OTHER, committed, opened, plan, reply, stepped
from spes_sync.bases import Fate
from spes_sync.client.actions import (
    Push,
    Rebase,
    Step,
)
from spes_sync.client.machine import Cadence, PeerMachine

MINE = {0: (ME, 1), 1: (OTHER, 1)}
SHA = "a" * 64


def cadence(**changes) -> Cadence:
    defaults = {
        "every_steps": 2,
        "every_seconds": None,
        "batch_tokens": 8,
        "sequence_tokens": 4,
        "save_every_rounds": 1,
        "max_missed": 1,
    }
    return Cadence(**{**defaults, **changes})


def in_round(number: int = 1, *, rules: Cadence | None = None, **round_fields) -> PeerMachine:
    """A peer that owns expert 0 and is about to make its first step of a round."""
    machine = PeerMachine(ME, rules or cadence(), version=number - 1, owned={0: 1})
    machine.observe(plan(MINE))
    machine.observe(committed(number - 1))
    machine.observe(opened(number, **round_fields))
    machine.announced()
    return machine


def train(machine: PeerMachine, steps: int, now: float = 0.0) -> None:
    for _ in range(steps):
        assert isinstance(machine.next(now), Step)
        machine.stepped(stepped())


def push(machine: PeerMachine, verdict: str = "VERIFIED", **more) -> Push:
    action = machine.next(0)
    assert isinstance(action, Push)
    machine.offering(action, SHA)
    machine.pushed(action, reply(verdict, **more))
    return action


def rebase(machine: PeerMachine, version: int) -> Fate:
    assert isinstance(machine.next(0), Rebase)
    fate = machine.fate(version, absolute=False)
    machine.rebased(version, fate)
    return fate
