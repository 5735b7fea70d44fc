"""Errors that every package shares.

SpesError          base of every error raised on purpose
└── ConfigError    a person can fix it: one line per problem
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

# A file can be wrong in thousands of places; more lines than this help nobody.
MAX_LINES = 50


class SpesError(Exception):
    """Base of every error raised on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong, and where."""

    text: str
    field: str = ""
    """Dotted camelCase path, for example spec.sync.everySteps; empty: the file as a whole."""
    line: int | None = None
    """Line in the file, counted from 1, where it is known."""

    def sentence(self, source: str) -> str:
        """One line: source, line, field, text."""
        where = source if self.line is None else f"{source}:{self.line}"
        return f"{where}: {self.field} {self.text}" if self.field else f"{where}: {self.text}"


class ConfigError(SpesError):
    """A person can fix it: what is wrong, got, expected, what to do; one line per problem."""

    @classmethod
    def of(cls, source: str, problems: Sequence[Problem]) -> Self:
        """The problems of what a person wrote, each in a line.

        Args:
            source: What was read, for example the file's path.
            problems: At least one.
        """
        lines = [problem.sentence(source) for problem in problems[:MAX_LINES]]
        if len(problems) > MAX_LINES:
            lines.append(f"{source}: and {len(problems) - MAX_LINES} more problems")
        return cls("\n".join(lines))
