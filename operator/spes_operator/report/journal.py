"""Reads the sync server's journal into records. Pure: takes lines, gives a `Journal`.

A line that cannot be read (the last one, if the server was killed while writing it) is counted and
skipped; an event that the report has no use for is skipped too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from spes_api.ranges import parse_ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A round opened, or opened again after a restart or a change of plan."""

    time: datetime
    round: int
    epoch: int
    expected: tuple[str, ...]
    owners: Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRound:
    """What one peer put into a committed round."""

    peer: str
    experts: tuple[int, ...]
    tokens: int
    loss: float | None
    tokens_per_second: float
    bytes_up: int
    bytes_down: int
    wait_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A round was committed."""

    time: datetime
    round: int
    epoch: int
    seconds: float
    tokens: int
    """Of all peers since the beginning."""
    model_sha256: str
    peers: tuple[PeerRound, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """Held-out loss of a version, in nats per token."""

    version: int
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Any other event worth a sentence; fields that it lacks are empty."""

    time: datetime
    event: str
    round: int | None
    peer: str
    reason: str
    detail: str
    peers: tuple[str, ...] = ()
    """Of an event about several; none: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """A whole journal. Of a round or version told twice, the last telling counts."""

    opened: tuple[Opened, ...] = ()
    commits: tuple[Committed, ...] = ()
    evaluations: tuple[Evaluated, ...] = ()
    notes: tuple[Note, ...] = ()
    start: datetime | None = None
    end: datetime | None = None
    num_unreadable: int = 0

    @property
    def complete(self) -> bool:
        """Whether the job reached its tokens."""
        return any(note.event == "complete" for note in self.notes)

    @property
    def refusals(self) -> tuple[Note, ...]:
        """Pushes and joins that were refused."""
        return tuple(note for note in self.notes if note.event in {"refused", "joinRefused"})


@dataclass(slots=True)
class _Reader:
    opened: list[Opened] = field(default_factory=list)
    commits: dict[int, Committed] = field(default_factory=dict)
    evaluations: dict[int, Evaluated] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    times: list[datetime] = field(default_factory=list)

    def read(self, line: str) -> None:
        entry = json.loads(line)
        time, event = datetime.fromisoformat(entry["time"]), entry["event"]
        if event == "opened":
            self.opened.append(_opened(time, entry))
        elif event == "committed":
            self.commits[int(entry["version"])] = _committed(time, entry)
        elif event == "evaluated":
            version = int(entry["version"])
            self.evaluations[version] = Evaluated(version=version, loss=float(entry["loss"]))
        else:
            self.notes.extend(_note(time, event, entry))
        self.times.append(time)


def read_journal(lines: Iterable[str]) -> Journal:
    """Return what the lines say."""
    reader = _Reader()
    num_unreadable = 0
    for line in lines:
        try:
            reader.read(line)
        except (ValueError, KeyError, TypeError, AttributeError):
            num_unreadable += bool(line.strip())
    return Journal(
        opened=tuple(reader.opened),
        commits=tuple(commit for _, commit in sorted(reader.commits.items())),
        evaluations=tuple(seen for _, seen in sorted(reader.evaluations.items())),
        notes=tuple(reader.notes),
        start=min(reader.times, default=None),
        end=max(reader.times, default=None),
        num_unreadable=num_unreadable,
    )


def _opened(time: datetime, entry: Mapping[str, Any]) -> Opened:
    owners = {
        expert: str(peer)
        for peer, experts in entry["owners"].items()
        for expert in sorted(parse_ranges(experts))
    }
    return Opened(
        time=time,
        round=int(entry["round"]),
        epoch=int(entry["epoch"]),
        expected=tuple(str(peer) for peer in entry["expected"]),
        owners=owners,
    )


def _committed(time: datetime, entry: Mapping[str, Any]) -> Committed:
    return Committed(
        time=time,
        round=int(entry["round"]),
        epoch=int(entry["epoch"]),
        seconds=float(entry["seconds"]),
        tokens=int(entry["globalTokens"]),
        model_sha256=str(entry["modelSha256"]),
        peers=tuple(_peer_round(peer) for peer in entry["peers"]),
    )


def _peer_round(entry: Mapping[str, Any]) -> PeerRound:
    loss = entry.get("loss")
    return PeerRound(
        peer=str(entry["peer"]),
        experts=tuple(sorted(parse_ranges(entry["experts"]))),
        tokens=int(entry["tokens"]),
        loss=float(loss) if loss is not None and math.isfinite(loss) else None,
        tokens_per_second=float(entry["tokensPerSecond"]),
        bytes_up=int(entry["bytesUp"]),
        bytes_down=int(entry["bytesDown"]),
        wait_seconds=float(entry["waitSeconds"]),
    )


def _alpha(entry: Mapping[str, Any]) -> str:
    """How far experts were merged."""
    return f"alpha {float(entry['alpha']):.4g}" if "alpha" in entry else ""


def _note(time: datetime, event: str, entry: Mapping[str, Any]) -> list[Note]:
    """A push is a note only if less than all of it was taken."""
    if event == "push":
        event = {"REFUSED": "refused", "PARTLY": "partly"}.get(str(entry["verdict"]), "")
    if not event:
        return []
    number = entry.get("round")
    return [
        Note(
            time=time,
            event=str(event),
            round=None if number is None else int(number),
            peers=tuple(str(peer) for peer in entry.get("peers", ())),
            peer=str(entry.get("peer", "")),
            reason=str(entry.get("reason", "")),
            detail=str(entry.get("detail") or entry.get("problem") or _alpha(entry)),
        )
    ]
