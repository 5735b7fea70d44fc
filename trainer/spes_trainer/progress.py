"""What a person sees while a trainer works alone: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)


class Display(Protocol):
    """Where training reports to."""

    def step(self, *, tokens: int, loss: float) -> None:
        """One optimizer step is done; `tokens` counts from the beginning of the run."""

    def say(self, text: str) -> None:
        """Something worth a line of its own."""


class Lines:
    """Prints what is said and nothing per step."""

    def __init__(self, out: TextIO) -> None:
        """Write to `out`."""
        self._out = out

    def step(self, *, tokens: int, loss: float) -> None:
        """Stay silent."""

    def say(self, text: str) -> None:
        """Print at once, also into a pipe."""
        self._out.write(f"{text}\n")
        self._out.flush()


class Bar:
    """A progress bar over tokens with the loss of the last step."""

    def __init__(self, bar: Progress, max_tokens: int) -> None:
        """Show nothing done of `max_tokens`."""
        self._bar = bar
        self._task = bar.add_task("loss     -", total=max_tokens)

    def step(self, *, tokens: int, loss: float) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=tokens, description=f"loss {loss:.3f}")

    def say(self, text: str) -> None:
        """Print above the bar."""
        self._bar.console.print(text, highlight=False, markup=False)


@contextmanager
def display(max_tokens: int) -> Iterator[Display]:
    """A bar if standard output is a terminal, else lines."""
    if not sys.stdout.isatty():
        yield Lines(sys.stdout)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TextColumn("tokens"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console()) as bar:
        yield Bar(bar, max_tokens)
