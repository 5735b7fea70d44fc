"""The events of a local run, for example `uni-c preempted @ round 8`.

    EVENT := MEMBER VERB "@" WHEN      VERB := joins | leaves | preempted | crashes | killed
    WHEN  := "round" N | N "s"

`sync-server killed @ round N` kills the sync server instead of a member. Pure: the caller tells
which round is open and how long the run has lasted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from spes_operator.errors import ConfigError

# Not a member: the one process besides the members that an event can hit.
SYNC_SERVER = "sync-server"

_HINT = "write for example 'uni-c preempted @ round 8' or 'uni-d joins @ 30 s'"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_WHEN = re.compile(r"round\s+(?P<round>\d{1,9})|(?P<second>\d{1,9})\s*s")


class Verb(StrEnum):
    """What happens."""

    JOINS = "joins"
    """The agent starts; a member whose first event this is, is absent until then."""
    LEAVES = "leaves"
    """Drained: partial push, experts move, the agent stops."""
    PREEMPTED = "preempted"
    """Its nodes are taken away: SIGTERM, SIGKILL after the grace, slots no longer offered."""
    CRASHES = "crashes"
    """SIGKILL to the trainers alone: they are replaced locally."""
    KILLED = "killed"
    """SIGKILL to agent and trainers, no goodbye."""


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """When a round opens, or that long after the start."""

    unit: Literal["round", "second"]
    number: int

    def __str__(self) -> str:
        """As in the grammar."""
        return f"round {self.number}" if self.unit == "round" else f"{self.number} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happens to a member, or to the sync server."""

    target: str
    verb: Verb
    when: When

    def __str__(self) -> str:
        """As in the grammar: `parse_event` reads it back."""
        return f"{self.target} {self.verb} @ {self.when}"


def parse_event(text: str) -> Event:
    """Read one event.

    Raises:
        ConfigError: `text` does not follow the grammar; says which part and what is allowed.
    """
    subject, at, moment = text.partition("@")
    match subject.split() if at else []:
        case [target, verb]:
            pass
        case _:
            raise ConfigError(f"event must be MEMBER VERB @ WHEN (got {text!r}); {_HINT}")
    if not _NAME.fullmatch(target):
        raise ConfigError(f"event {text!r}: {target!r} is no member's name; {_HINT}")
    if verb not in set(Verb):
        raise ConfigError(
            f"event {text!r}: unknown verb (got {verb!r}, expected one of {', '.join(Verb)})"
        )
    if target == SYNC_SERVER and verb != Verb.KILLED:
        raise ConfigError(f"event {text!r}: the sync server can only be killed (got {verb!r})")
    return Event(target=target, verb=Verb(verb), when=_parse_when(moment.strip(), text))


def _parse_when(moment: str, text: str) -> When:
    match = _WHEN.fullmatch(moment)
    if match is None:
        raise ConfigError(
            f"event {text!r}: unknown time (got {moment!r}, expected 'round N' or 'N s'); {_HINT}"
        )
    if match["round"] is None:
        return When(unit="second", number=int(match["second"]))
    if int(match["round"]) < 1:
        raise ConfigError(f"event {text!r}: rounds are counted from 1 (got {match['round']})")
    return When(unit="round", number=int(match["round"]))


def check_members(events: Iterable[Event], members: Collection[str]) -> list[str]:
    """One sentence per event whose target is none of `members`."""
    known = ", ".join(sorted(members))
    return [
        f"event {str(event)!r}: no such member (got {event.target!r}, expected one of {known})"
        for event in events
        if event.target != SYNC_SERVER and event.target not in members
    ]


def absent_at_start(events: Sequence[Event]) -> frozenset[str]:
    """The members whose first event is `joins`.

    A member's first event is its earliest; times in rounds and in seconds cannot be compared, so
    between those the order of `events` decides.
    """
    first: dict[str, Event] = {}
    for event in events:
        known = first.setdefault(event.target, event)
        if event.when.unit == known.when.unit and event.when.number < known.when.number:
            first[event.target] = event
    return frozenset(name for name, event in first.items() if event.verb is Verb.JOINS)


def due(pending: Sequence[Event], *, open_round: int, elapsed: float) -> list[Event]:
    """The events of `pending` whose time has come, earliest first within each unit.

    Args:
        pending: Events that have not happened yet.
        open_round: Number of the round that is open or was last open; 0 before the first.
        elapsed: Seconds since the run started.
    """
    reached = {"round": open_round, "second": elapsed}
    return sorted(
        (event for event in pending if event.when.number <= reached[event.when.unit]),
        key=lambda event: (event.when.unit, event.when.number),
    )
