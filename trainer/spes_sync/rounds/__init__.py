"""Rounds as a pure state machine: `advance(state, event, now) -> Step(state, effects)`."""

from __future__ import annotations

from spes_sync.rounds.events import Effect, Event, Push
from spes_sync.rounds.machine import Step, advance
from spes_sync.rounds.membership import Buffer, Peer, Rules
from spes_sync.rounds.state import Phase, Round, State

__all__ = [
    "Buffer",
    "Effect",
    "Event",
    "Peer",
    "Phase",
    "Push",
    "Round",
    "Rules",
    "State",
    "Step",
    "advance",
]
