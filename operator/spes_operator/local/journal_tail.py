"""Follows the sync server's journal as it grows, for the held-out losses on the screen."""

from __future__ import annotations

from pathlib import Path

from spes_operator.display import HeldOut
from spes_operator.report.journal import read_journal


class JournalTail:
    """Reads what is new in a journal each time it is asked."""

    def __init__(self, path: Path) -> None:
        """Begin at the start of `path`, which need not exist yet."""
        self._path = path
        self._offset = 0
        self._tokens: dict[int, int] = {}
        self._losses: dict[int, float] = {}

    def held_out(self) -> tuple[HeldOut, ...]:
        """Every evaluation until now, oldest first."""
        journal = read_journal(self._new_lines())
        self._tokens.update({commit.round: commit.tokens for commit in journal.commits})
        self._losses.update({seen.version: seen.loss for seen in journal.evaluations})
        return tuple(
            HeldOut(version=version, tokens=self._tokens.get(version, 0), loss=loss)
            for version, loss in sorted(self._losses.items())
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
