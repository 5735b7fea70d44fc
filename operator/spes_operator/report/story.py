"""The story of a run in sentences, in order of time. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from spes_operator.display.units import count, ranges
from spes_operator.report.cluster import Moved
from spes_operator.report.journal import Journal, Note, Opened
from spes_operator.report.record import RunRecord

# Journal event -> sentence. {peer}, {round}, {reason} and {detail} are filled in.
_SENTENCES = {
    "joined": "{peer} connected to the sync server.",
    "disconnected": "{peer} lost its connection.",
    "reconnected": "{peer} is connected again.",
    "left": "{peer} left round {round}: {reason}.",
    "held": "Round {round} is held: {detail}",
    "refused": "A push of {peer} was refused: {reason}. {detail}",
    "partly": "A push of {peer} was taken in part: {reason}. {detail}",
    "joinRefused": "{peer} may not join: {reason}. {detail}",
    "merged": "Round {round} merged the experts: {detail}.",
    "complete": "The job is complete.",
}
_CONNECTING = frozenset({"joined", "connected", "reconnected"})
_WARNINGS = frozenset({"disconnected", "left", "held", "refused", "partly", "joinRefused"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One sentence of the story."""

    time: datetime
    round: int
    """The round that was open or the next one; 0: before the first."""
    text: str
    warning: bool = False


def tell(run: RunRecord) -> tuple[Moment, ...]:
    """Return the moments, oldest first."""
    opened = run.journal.opened
    times = [seen.time for seen in opened]
    moments = [*_openings(opened), *_missing(run.journal)]

    def round_at(time: datetime) -> int:
        place = bisect_right(times, time)
        return opened[place - 1].round if place else 0

    for note in _unexpected(run.journal.notes):
        if note.event in _SENTENCES:
            moments.append(_noted(note, round_at(note.time)))
    for event in run.cluster.events:
        number = round_at(event.time)
        moments.append(
            Moment(time=event.time, round=number, text=event.message, warning=event.warning)
        )
    return tuple(sorted(moments, key=lambda moment: moment.time))


def _unexpected(notes: Iterable[Note]) -> Iterator[Note]:
    """All but connections whose end is no surprise, and what a server says again after the end.

    A peer's connection ends when it leaves, is told to stop, or the job is complete.
    """
    connected: set[str] = set()
    going: set[str] = set()
    complete = False
    for note in notes:
        if note.event in _CONNECTING:
            connected.add(note.peer)
            going.discard(note.peer)
        elif note.event == "leaving":
            going.add(note.peer)
        elif note.event == "stop":
            going |= set(note.peers) or connected
        is_end = note.event == "disconnected" and (complete or note.peer in going)
        is_again = note.event == "complete" and complete
        complete = complete or note.event == "complete"
        if not (is_end or is_again):
            yield note


def moves_sentence(moves: Iterable[Moved]) -> str:
    """Return who got which experts, and how the number of moves compares with the bound."""
    moves = tuple(moves)
    routes: dict[tuple[str, str], list[int]] = {}
    for move in moves:
        route = (move.source or "no owner", move.target or "no owner")
        routes.setdefault(route, []).append(move.expert)
    said = "; ".join(
        f"{_experts(experts)} from {source} to {target}"
        for (source, target), experts in routes.items()
    )
    bounds = {move.lower_bound for move in moves} - {None}
    if len(bounds) != 1:
        return said
    (bound,) = bounds
    fewest = "the fewest possible" if bound == len(moves) else f"at least {bound} were needed"
    return f"{said} ({count(len(moves))} moves, {fewest})"


def _experts(experts: list[int]) -> str:
    return f"expert{'s' if len(experts) > 1 else ''} {ranges(experts)}"


def _openings(opened: tuple[Opened, ...]) -> Iterator[Moment]:
    """The first round, and every opening that is not the usual one more."""
    if opened:
        yield _opening(opened[0], f"Round {opened[0].round} opens: {_owned(opened[0].owners)}.")
    for before, now in pairwise(opened):
        again = before.round == now.round
        if again and before.epoch == now.epoch:
            yield _opening(now, f"Round {now.round} opens again: the sync server restarted.", True)
        elif before.epoch != now.epoch:
            opens = f"Round {now.round} opens {'again ' if again else ''}under epoch {now.epoch}"
            yield _opening(now, f"{opens}: {_owned(now.owners)}.")


def _opening(opened: Opened, text: str, warning: bool = False) -> Moment:
    return Moment(time=opened.time, round=opened.round, text=text, warning=warning)


def _owned(owners: Mapping[int, str]) -> str:
    experts: dict[str, list[int]] = {}
    for expert, peer in sorted(owners.items()):
        experts.setdefault(peer, []).append(expert)
    if not experts:
        return "every peer trains all experts"
    return ", ".join(f"{peer} trains {_experts(owned)}" for peer, owned in sorted(experts.items()))


def _missing(journal: Journal) -> Iterator[Moment]:
    """Rounds that closed without a peer that was expected to the end."""
    expected = {opened.round: opened.expected for opened in journal.opened}
    excused = {(note.round, note.peer) for note in journal.notes if note.event == "left"}
    for commit in journal.commits:
        there = {part.peer for part in commit.peers}
        late = [
            peer
            for peer in expected.get(commit.round, ())
            if peer not in there and (commit.round, peer) not in excused
        ]
        if late:
            text = f"Round {commit.round} closed without {', '.join(late)}."
            yield Moment(time=commit.time, round=commit.round, text=text, warning=True)


def _noted(note: Note, round_then: int) -> Moment:
    text = _SENTENCES[note.event].format(
        peer=note.peer or "A peer",
        round=note.round,
        reason=note.reason or "no reason given",
        detail=note.detail,
    )
    return Moment(
        time=note.time,
        round=note.round or round_then,
        text=" ".join(text.split()),
        warning=note.event in _WARNINGS,
    )
