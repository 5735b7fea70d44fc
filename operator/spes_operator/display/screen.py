"""The display that fits the output: a live screen on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Generic, Protocol, Self, TextIO, TypeAlias, TypeVar

from spes_operator.display.live import LiveDisplay
from spes_operator.display.plain import PlainDisplay
from spes_operator.display.view import RunView

Shown_contra = TypeVar("Shown_contra", contravariant=True)


class Shows(Protocol[Shown_contra]):
    """Shows things, newest last. A context manager: leaving it gives the terminal back."""

    def show(self, view: Shown_contra) -> None:
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


Display: TypeAlias = Shows[RunView]


class WhileWatched(Generic[Shown_contra]):
    """Shows things for as long as there is somewhere to show them; a lost terminal ends no run."""

    def __init__(self, display: Shows[Shown_contra], stream: TextIO) -> None:
        """Show them by `display`, which writes to `stream`."""
        self._display = display
        self._stream = stream

    def __enter__(self) -> Self:
        """Take the terminal."""
        self._display.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the terminal back, if it is still there."""
        try:
            self._display.__exit__(kind, error, trace)
        except OSError:
            silence(self._stream)

    def show(self, view: Shown_contra) -> None:
        """Show this moment, or nothing from now on."""
        try:
            self._display.show(view)
        except OSError:
            silence(self._stream)


def open_display(*, plain: bool = False, stream: TextIO = sys.stdout) -> Display:
    """Return the live screen if `stream` is a terminal and `plain` is not asked for, else lines."""
    if plain or not stream.isatty():
        return PlainDisplay(stream)
    return LiveDisplay(stream)


def silence(stream: TextIO) -> None:
    """Let what is still written to `stream` vanish: its terminal is closed, or its reader gone."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())
