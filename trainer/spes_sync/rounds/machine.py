"""The round state machine: state and event in, new state and effects out. Pure.

    SEEDING -> WAITING -> OPEN -> CLOSING -> WAITING ... COMPLETE
                           ^ |       |
                           | v       v
                           HELD <----+   (too few pushes at the deadline, or a full disk)

A round is a transaction: who is expected is fixed at its opening and only shrinks (or is fixed anew
when a held round re-opens under a new plan); what is verified counts at the commit, or not at all.
With a buffer a round closes with the pushes that fill it, and the others carry their work on.
Every event changes what it is about; then the guards are followed until none fires (`guards`). The
server calls `advance`; nothing else changes a state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spes_sync.rounds import events as ev
from spes_sync.rounds.guards import finish, remove, reopen, settle, stop_complete
from spes_sync.rounds.membership import Peer
from spes_sync.rounds.state import Phase, State
from spes_sync.rounds.turn import Turn

# How long until a commit that found the disk full is tried again.
RETRY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Step:
    """What an event led to."""

    state: State
    effects: tuple[ev.Effect, ...]


def advance(state: State, event: ev.Event, now: float) -> Step:
    """Apply one event at time `now` (seconds of a monotonic clock)."""
    turn = Turn(state, now)
    _HANDLERS[type(event)](turn, event)
    settle(turn)
    return Step(turn.state, tuple(turn.effects))


# Events.


def _plan_applied(turn: Turn, event: ev.PlanApplied) -> None:
    before, plan = turn.state.newest, event.plan
    turn.set(newest=plan, rules=event.rules, seed_peer=event.seed_peer)
    for peer in plan.peers:
        if peer not in turn.state.peers:
            turn.set_peer(peer)
    if turn.state.phase is Phase.SEEDING and event.seed_peer is not None:
        turn.effects.append(ev.SeedNeeded(peer=event.seed_peer))
    removed = frozenset(before.peers) - frozenset(plan.peers)
    if removed:
        turn.effects.append(ev.PlanChanged(peers=removed))
    for peer in sorted(removed):
        remove(turn, peer)
    if turn.state.phase is Phase.HELD and plan.epoch > turn.round.plan.epoch:
        reopen(turn)


def _joined(turn: Turn, event: ev.Joined) -> None:
    turn.drop(event.peer, "a new process joined")
    if turn.state.accepts_pushes:
        turn.set_round(silenced=turn.round.silenced - {event.peer})
    turn.set(peers={**turn.state.peers, event.peer: Peer(heard_at=turn.now)})
    turn.effects.append(ev.LeasesReturned(peer=event.peer))


def _heard(turn: Turn, event: ev.Heard) -> None:
    turn.set_peer(event.peer, heard_at=turn.now, connected=True)
    if event.version is not None:
        turn.set_peer(event.peer, version=event.version)
    if turn.state.accepts_pushes and event.peer in turn.round.silenced:
        turn.set_round(
            expected=turn.round.expected | {event.peer},
            silenced=turn.round.silenced - {event.peer},
        )


def _disconnected(turn: Turn, event: ev.Disconnected) -> None:
    turn.set_peer(event.peer, connected=False)


def _caught_up(turn: Turn, event: ev.CaughtUp) -> None:
    _heard(turn, ev.Heard(peer=event.peer, version=event.version))
    if turn.state.version >= 0:  # nobody is caught up before version 0
        turn.set_peer(event.peer, caught_up=True)


def _left(turn: Turn, event: ev.Left) -> None:
    turn.set_peer(event.peer, left=event.reason or "left")
    turn.drop(event.peer, f"left: {event.reason}" if event.reason else "left")


def _verified(turn: Turn, event: ev.Verified) -> None:
    peer, push, now_open = event.peer, event.push, turn.round
    assert turn.state.accepts_pushes, "judged before it is verified"
    assert peer in now_open.expected, "judged before it is verified"
    assert not now_open.has(peer, push.part), "nothing counts twice"
    turn.set_round(pushes={**now_open.pushes, peer: (*now_open.pushes.get(peer, ()), push)})
    if push.has_shared:
        turn.set_round(done=turn.round.done | {peer})
        if push.final:
            turn.set_peer(peer, final=True)


def _refused(turn: Turn, event: ev.Refused) -> None:
    if event.again:
        return
    turn.drop(event.peer, f"push refused: {event.reason}")
    turn.effects.append(ev.LeasesReturned(peer=event.peer))


def _tick(turn: Turn, event: ev.Tick) -> None:
    """Only time has passed: `guards` does the rest."""


def _seeded(turn: Turn, event: ev.Seeded) -> None:  # noqa: ARG001  all handlers look alike
    assert turn.state.phase is Phase.SEEDING
    turn.set(phase=Phase.WAITING, version=0)


def _committed(turn: Turn, event: ev.Committed) -> None:
    tokens, version = event.global_tokens, turn.round.number
    _count_missed(turn)
    turn.set(version=version, global_tokens=tokens, round=None, problem="", retry_at=None)
    if tokens >= turn.state.rules.max_tokens:
        turn.set(phase=Phase.COMPLETE)
        turn.effects.append(ev.Completed())
    else:
        turn.set(phase=Phase.WAITING)


def _count_missed(turn: Turn) -> None:
    closed = turn.round
    for peer in sorted((closed.expected | closed.silenced) & turn.state.peers.keys()):
        missed = 0 if peer in closed.sharers else turn.state.peers[peer].missed + 1
        turn.set_peer(peer, missed=missed)


def _commit_failed(turn: Turn, event: ev.CommitFailed) -> None:
    if event.problem != turn.state.problem:
        turn.effects.append(ev.WasHeld(problem=event.problem))
    turn.set(phase=Phase.HELD, problem=event.problem, retry_at=turn.now + RETRY_SECONDS)


def _exported(turn: Turn, event: ev.Exported) -> None:
    if turn.state.phase is Phase.COMPLETE:  # the job has not begun anew meanwhile
        finish(turn, evaluate=event.evaluate)


def _evaluated(turn: Turn, event: ev.Evaluated) -> None:
    _heard(turn, ev.Heard(peer=event.peer))
    if turn.state.evaluate_until is not None and event.version == turn.state.version:
        stop_complete(turn)


def _drain_asked(turn: Turn, event: ev.DrainAsked) -> None:
    for peer in turn.state.peers if event.peers is None else sorted(event.peers):
        turn.set_peer(peer, draining=True)
    turn.effects.append(ev.DrainSent(peers=event.peers, grace=event.grace))
    if event.stop:
        turn.set(stopping=event.stop)
        if turn.state.round is not None:
            turn.set_round(deadline=min(turn.round.deadline, turn.now + event.grace))


_HANDLERS: dict[type[Any], Callable[[Turn, Any], None]] = {
    ev.PlanApplied: _plan_applied,
    ev.Joined: _joined,
    ev.Heard: _heard,
    ev.Disconnected: _disconnected,
    ev.CaughtUp: _caught_up,
    ev.Left: _left,
    ev.Verified: _verified,
    ev.Refused: _refused,
    ev.Tick: _tick,
    ev.Seeded: _seeded,
    ev.Committed: _committed,
    ev.CommitFailed: _commit_failed,
    ev.Exported: _exported,
    ev.Evaluated: _evaluated,
    ev.DrainAsked: _drain_asked,
}
