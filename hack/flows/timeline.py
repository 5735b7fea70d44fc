"""What happened, in order: Events, lines of the sync server's journal, and what was done to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from builders.federation import event_time
from builders.sync_journal import time_of
from spes_operator.k8s.api import JsonObject

_WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Moment:
    """One line of the timeline."""

    time: datetime
    who: str
    text: str


def of_events(events: Iterable[JsonObject]) -> Iterator[Moment]:
    """Events that SPES has posted."""
    for event in events:
        if event.get("reportingComponent", "").startswith("spes.dev/"):
            about = event["involvedObject"]
            text = f"{event['reason']}: {event['message']}"
            yield Moment(
                time=event_time(event), who=f"{about['kind']} {about['name']}", text=_cut(text)
            )


def of_journal(entries: Iterable[dict[str, Any]]) -> Iterator[Moment]:
    """Changes of the plan, who comes and goes, and the first round after each change."""
    spoken = ("joined", "caughtUp", "leaving", "left", "disconnected", "reconnected", "stop")
    epoch, done = 0, 0
    for entry in entries:
        event = entry["event"]
        if event == "opened" and entry["epoch"] != epoch:
            epoch = entry["epoch"]
            owners = ", ".join(
                f"{peer} owns {experts}" for peer, experts in entry["owners"].items()
            )
            yield _told(entry, f"round {entry['round']} opens under epoch {epoch}: {owners}")
        elif event == "committed" and entry["epoch"] != done:
            done = entry["epoch"]
            peers = ", ".join(peer["peer"] for peer in entry["peers"])
            yield _told(entry, f"round {entry['round']} is committed with work of {peers}")
        elif event in spoken:
            about = entry.get("peer") or ", ".join(entry["peers"])
            more = entry.get("reason") or entry.get("version", "")
            yield _told(entry, f"{event}: {about} {more}".rstrip())


def lines(moments: Iterable[Moment], since: datetime) -> Iterator[str]:
    """As text, with the seconds since the beginning."""
    for moment in sorted(moments):
        seconds = (moment.time - since).total_seconds()
        yield f"{seconds:7.1f}  {moment.who:<34} {moment.text}"


def _told(entry: dict[str, Any], text: str) -> Moment:
    return Moment(time=time_of(entry), who="sync server", text=_cut(text))


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "..."
