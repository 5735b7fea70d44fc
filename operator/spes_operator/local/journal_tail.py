"""Follows the sync server's journal as it grows, for what the screen shows of the past."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from spes_operator.display import HeldOut
from spes_operator.report.journal import PeerRound, read_journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """What one peer has cost in all committed rounds, whatever became of it since."""

    bytes_up: int = 0
    bytes_down: int = 0
    waited: timedelta = timedelta()

    def plus(self, part: PeerRound) -> Total:
        """With one more round."""
        return Total(
            bytes_up=self.bytes_up + part.bytes_up,
            bytes_down=self.bytes_down + part.bytes_down,
            waited=self.waited + timedelta(seconds=part.wait_seconds),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What a journal tells."""

    held_out: tuple[HeldOut, ...] = ()
    """Every evaluation until now, oldest first."""
    totals: Mapping[str, Total] = field(default_factory=dict)
    """By peer."""


class JournalTail:
    """Reads what is new in a journal each time it is asked."""

    def __init__(self, path: Path) -> None:
        """Begin at the start of `path`, which need not exist yet."""
        self._path = path
        self._offset = 0
        self._tokens: dict[int, int] = {}
        self._losses: dict[int, float] = {}
        self._totals: dict[str, Total] = {}

    def look(self) -> Past:
        """All that is known by now."""
        journal = read_journal(self._new_lines())
        self._tokens.update({commit.round: commit.tokens for commit in journal.commits})
        self._losses.update({seen.version: seen.loss for seen in journal.evaluations})
        for part in (part for commit in journal.commits for part in commit.peers):
            self._totals[part.peer] = self._totals.get(part.peer, Total()).plus(part)
        return Past(
            held_out=tuple(
                HeldOut(version=version, tokens=self._tokens.get(version, 0), loss=loss)
                for version, loss in sorted(self._losses.items())
            ),
            totals=dict(self._totals),
        )

    def _new_lines(self) -> list[str]:
        """Whole lines since the last time; one that is still being written waits."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                complete, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._offset += len(complete) + len(newline)
        return complete.decode("utf-8", "replace").splitlines()
