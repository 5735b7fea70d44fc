"""One line about something that takes a while: rewritten on a terminal, printed anew elsewhere."""

from __future__ import annotations

import shutil
from types import TracebackType
from typing import Self, TextIO

from spes_operator.display.units import printable

_REWRITE = "\r\x1b[K"


class ProgressLine:
    """Shows sentences, each in place of the one before if the output allows that."""

    def __init__(self, stream: TextIO, *, plain: bool) -> None:
        """Write to `stream`; `plain` asks for a line each."""
        self._stream = stream
        self._in_place = stream.isatty() and not plain
        self._shown = False

    def __enter__(self) -> Self:
        """Nothing yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the last sentence where it is, and go on below it."""
        if self._in_place and self._shown:
            self._stream.write("\n")

    def show(self, view: str) -> None:
        """Show this one."""
        said = printable(view)
        if self._in_place:
            columns = shutil.get_terminal_size().columns
            self._stream.write(f"{_REWRITE}{said[: columns - 1]}")
        else:
            self._stream.write(f"{said}\n")
        self._stream.flush()
        self._shown = True
