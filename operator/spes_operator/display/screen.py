"""The display that fits the output: a live screen on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Protocol, Self, TextIO

from spes_operator.display.live import LiveDisplay
from spes_operator.display.plain import PlainDisplay
from spes_operator.display.view import RunView


class Display(Protocol):
    """Shows views, newest last. A context manager: leaving it gives the terminal back."""

    def show(self, view: RunView) -> None:
        """Show this moment."""

    def __enter__(self) -> Self:
        """Take the terminal."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the terminal back; the last view stays on it."""


def open_display(*, plain: bool = False, stream: TextIO = sys.stdout) -> Display:
    """Return the live screen if `stream` is a terminal and `plain` is not asked for, else lines."""
    if plain or not stream.isatty():
        return PlainDisplay(stream)
    return LiveDisplay(stream)
