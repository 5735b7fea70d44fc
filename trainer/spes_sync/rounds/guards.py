"""The guards of the round machine and what each leads to: open, close, hold, give up, stop.

`settle` runs after every event and follows the guards once, in the order of a round's life. Pure.
"""

from __future__ import annotations

from spes_sync.plan import PeerId
from spes_sync.rounds import events as ev
from spes_sync.rounds.state import Phase, Round
from spes_sync.rounds.turn import Turn

# Why peers of a job that has its tokens are told to stop.
COMPLETE = "COMPLETE"


def settle(turn: Turn) -> None:
    """Follow the guards until none fires."""
    if turn.state.accepts_pushes:
        _drop_silent(turn)
    if turn.state.phase is Phase.OPEN:
        _settle_open(turn)
    if turn.state.phase is Phase.HELD:
        _settle_held(turn)
    if turn.state.phase is Phase.WAITING:
        _settle_waiting(turn)
    if turn.state.phase is Phase.COMPLETE:
        _settle_complete(turn)
    _stop_drained(turn)
    _forget_gone(turn)


def _drop_silent(turn: Turn) -> None:
    for peer in sorted(turn.round.awaited):
        known = turn.state.peers.get(peer)
        if known is None or known.silent(turn.now, turn.state.rules):
            if not turn.round.pushes.get(peer):
                turn.set_round(silenced=turn.round.silenced | {peer})
            turn.drop(peer, "silent")


def _settle_open(turn: Turn) -> None:
    now_open, stopping = turn.round, bool(turn.state.stopping)
    if not now_open.awaited:
        _close(turn) if now_open.pushes else _give_up(turn)
    elif _is_full(turn):
        _close(turn)
    elif turn.now >= now_open.deadline:
        enough = 1 if stopping else turn.state.needed()
        if len(now_open.pushes) >= enough:
            for peer in sorted(now_open.awaited):
                turn.effects.append(ev.Dropped(peer=peer, reason="missed the deadline"))
            _close(turn)
        elif stopping:
            _give_up(turn)
        else:
            _hold(turn)


def _is_full(turn: Turn) -> bool:
    """Whether a buffer has its pushes, and its version leaves nobody too far behind."""
    buffer, now_open = turn.state.rules.buffer, turn.round
    if buffer is None or len(now_open.sharers) < buffer.size_of(len(now_open.expected)):
        return False
    awaited = (turn.state.peers[peer] for peer in now_open.awaited)
    return all(peer.missed < buffer.max_staleness for peer in awaited)


def _settle_held(turn: Turn) -> None:
    held = turn.round
    if turn.state.retry_at is not None:
        if turn.now >= turn.state.retry_at:
            _close(turn)
    elif not held.pushes:
        if not held.expected or turn.state.stopping:
            _give_up(turn)
    elif turn.state.stopping or not held.awaited or len(held.pushes) >= turn.state.needed():
        _close(turn)


def _settle_waiting(turn: Turn) -> None:
    state = turn.state
    if state.stopping:
        if not state.stop_sent:
            turn.set(stop_sent=True)
            turn.effects.append(ev.StopSent(peers=None, reason=state.stopping))
        return
    ready = state.ready(turn.now)
    decided = all(state.peers[p].decided(turn.now, state.rules) for p in state.newest.peers)
    if decided and len(ready) >= max(1, state.rules.min_members):
        _open(turn, ready)


def _settle_complete(turn: Turn) -> None:
    """Have one peer evaluate the final version: the next one if it is lost, none after a while."""
    state = turn.state
    if state.evaluate_until is None:
        return
    if turn.now >= state.evaluate_until:
        stop_complete(turn)
        return
    ready = state.ready(turn.now)
    if ready and state.evaluator not in ready:
        chosen = min(ready)
        turn.set(evaluator=chosen)
        turn.effects.append(
            ev.StopSent(
                peers=frozenset({chosen}),
                reason=COMPLETE,
                evaluate_seconds=state.evaluate_until - turn.now,
            )
        )


def _stop_drained(turn: Turn) -> None:
    for peer, known in turn.state.peers.items():
        left = known.draining and known.left and not known.stopped
        if left and peer not in turn.state.newest.peers:
            turn.set_peer(peer, stopped=True)
            turn.effects.append(ev.StopSent(peers=frozenset({peer}), reason="DRAINED"))


def _forget_gone(turn: Turn) -> None:
    state, placed = turn.state, frozenset(turn.state.newest.peers)
    gone = {
        peer
        for peer, known in state.peers.items()
        if peer not in placed
        and not known.connected
        and (known.left or known.silent(turn.now, state.rules))
    }
    if gone:
        turn.set(peers={peer: known for peer, known in state.peers.items() if peer not in gone})


# What a guard or an event leads to.


def finish(turn: Turn, *, evaluate: bool) -> None:
    """End a complete job: at once for all, or for all but the one that evaluates its model."""
    if not evaluate:
        stop_complete(turn)
        return
    turn.set(stop_sent=True, evaluate_until=turn.now + turn.state.rules.timeout)
    _settle_complete(turn)
    others = frozenset(turn.state.peers) - {turn.state.evaluator}
    turn.effects.append(ev.StopSent(peers=others, reason=COMPLETE))


def stop_complete(turn: Turn) -> None:
    """Wait for nothing more: everyone of a complete job may end."""
    turn.set(stop_sent=True, evaluator=None, evaluate_until=None)
    turn.effects.append(ev.StopSent(peers=None, reason=COMPLETE))


def remove(turn: Turn, peer: PeerId) -> None:
    """Take a peer that the plan no longer names out of the round at once."""
    turn.drop(peer, "removed from the plan")
    if turn.state.accepts_pushes:
        turn.set_round(expected=turn.round.expected - {peer}, silenced=turn.round.silenced - {peer})
    turn.effects.append(ev.LeasesReturned(peer=peer))


def _open(turn: Turn, expected: frozenset[PeerId]) -> None:
    state = turn.state
    if state.newest.epoch != state.active.epoch or not state.active.peers:
        turn.effects.append(ev.PlanChanged(peers=None))
    opened = Round(
        number=state.version + 1,
        plan=state.newest,
        expected=expected,
        deadline=turn.now + state.rules.timeout,
    )
    turn.set(phase=Phase.OPEN, round=opened, active=state.newest, problem="")
    turn.effects.append(ev.Opened())


def reopen(turn: Turn) -> None:
    """Open a held round again: same base, the newest plan, verified pushes kept."""
    held, placed = turn.round, frozenset(turn.state.newest.peers)
    expected = (turn.state.ready(turn.now) | held.pushes.keys()) & placed
    if not expected and not held.pushes:
        _give_up(turn)
        return
    turn.set_round(
        plan=turn.state.newest,
        expected=expected,
        deadline=turn.now + turn.state.rules.timeout,
        silenced=(held.expected | held.silenced) & placed - expected,
    )
    turn.set(phase=Phase.OPEN, active=turn.state.newest, problem="", retry_at=None)
    turn.effects += [ev.PlanChanged(peers=None), ev.Opened(reopened=True)]


def _close(turn: Turn) -> None:
    assert turn.round.pushes, "closing needs at least one verified push"
    retried = turn.state.retry_at is not None
    turn.set(phase=Phase.CLOSING, retry_at=None, problem=turn.state.problem if retried else "")
    turn.effects.append(ev.CommitWanted())


def _hold(turn: Turn) -> None:
    missing = ", ".join(sorted(turn.round.awaited))
    problem = (
        f"round {turn.round.number} has {len(turn.round.pushes)} of {turn.state.needed()} "
        f"needed pushes at its deadline; missing: {missing}"
    )
    turn.set(phase=Phase.HELD, problem=problem)
    turn.effects.append(ev.WasHeld(problem=problem))


def _give_up(turn: Turn) -> None:
    """Make no version of a round in which nobody is left and nothing was pushed."""
    given_up = turn.round
    turn.set(phase=Phase.WAITING, round=None, problem="")
    turn.effects.append(ev.GivenUp(number=given_up.number))
    for peer in sorted(given_up.expected | given_up.silenced):
        turn.effects.append(ev.LeasesReturned(peer=peer))
