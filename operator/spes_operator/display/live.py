"""The live screen of a terminal: redraws in place, one write per picture."""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.live import Live

from spes_operator.display.frame import frame
from spes_operator.display.view import RunView

# "Synchronized output": a terminal shows what lies between the two in one go, so nothing flickers;
# one that does not know it ignores it.
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"


class _WholeWrites:
    """A text stream each of whose writes appears at once."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.encoding = stream.encoding

    def write(self, text: str) -> int:
        return self._stream.write(f"{_BEGIN}{text}{_END}")

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()


class LiveDisplay:
    """Redraws the picture of the run in place; what others print meanwhile appears above it."""

    def __init__(self, stream: TextIO) -> None:
        """Draw on `stream`, a terminal. NO_COLOR is honoured."""
        self._console = Console(file=_WholeWrites(stream), highlight=False)  # type: ignore[arg-type]  # what rich uses of a stream
        self._live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> Self:
        """Hide the cursor."""
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Show the cursor again, below the last picture."""
        self._live.stop()

    def show(self, view: RunView) -> None:
        """Draw this moment, its events at the time of this machine's clock."""
        room = self._console.size
        events = tuple(replace(event, time=event.time.astimezone()) for event in view.events)
        view = replace(view, events=events)
        self._live.update(frame(view, width=room.width, height=room.height), refresh=True)
