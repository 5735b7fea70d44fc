"""How long a federation takes over what happens to it, out of objects and the journal. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from builders.sync_journal import SyncJournal, time_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A member that fell silent."""

    last_heartbeat: datetime
    """Its Lease's renewTime."""
    peer: str
    other: str
    """Who takes over."""


def last_sign_of_life(journal: SyncJournal, silence: Silence, before: datetime) -> datetime:
    """The later of its last heartbeat and its last push."""
    pushes = [
        time_of(entry)
        for entry in journal.entries("push")
        if entry["peer"] == silence.peer and time_of(entry) < before
    ]
    return max([silence.last_heartbeat, *pushes])


def of_silence(journal: SyncJournal, silence: Silence, now: datetime) -> tuple[float, float]:
    """Seconds from the last sign of life to ownership committed, and to work under it committed."""
    since = last_sign_of_life(journal, silence, now)
    moved = next(
        entry
        for entry in journal.since(since, "plan")
        if entry["epoch"] > _epoch_at(journal, since)
    )
    resumed = next(
        entry
        for entry in journal.since(since, "committed")
        if entry["epoch"] >= moved["epoch"] and _counts(entry, silence.other)
    )
    return _seconds(since, moved), _seconds(since, resumed)


def of_newcomer(journal: SyncJournal, peer: str, since: datetime) -> tuple[float, int]:
    """From caught up to its first counted push: seconds, and rounds that were committed for it."""
    caught_up = next(e for e in journal.since(since, "caughtUp") if e["peer"] == peer)
    counted = journal.first_counting(peer, time_of(caught_up))
    assert counted is not None
    rounds = [
        entry
        for entry in journal.since(time_of(caught_up), "committed")
        if entry["round"] <= counted["round"]
    ]
    return _seconds(time_of(caught_up), counted), len(rounds)


def _epoch_at(journal: SyncJournal, moment: datetime) -> int:
    opened = journal.entries("opened")
    return max(int(entry["epoch"]) for entry in opened if time_of(entry) <= moment)


def _counts(entry: dict[str, Any], peer: str) -> bool:
    return any(one["peer"] == peer for one in entry["peers"])


def _seconds(since: datetime, entry: dict[str, Any]) -> float:
    return (time_of(entry) - since).total_seconds()
