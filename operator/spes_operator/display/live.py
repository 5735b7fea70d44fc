"""The live screen of a terminal: redraws in place, one write per picture.

Meanwhile the terminal shows no ^C where the cursor rests: behind a full line it would break it, and
the picture would be redrawn a line too low.
"""

from __future__ import annotations

import io
import termios
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, ConsoleDimensions, RenderableType
from rich.live import Live

from spes_operator.display.frame import frame
from spes_operator.display.view import RunView

# Their place in what termios says of a terminal.
_LOCAL_FLAGS = 3
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


class LiveScreen:
    """Redraws a picture in place; what others print meanwhile appears above it."""

    def __init__(self, stream: TextIO) -> None:
        """Draw on `stream`, a terminal. NO_COLOR is honoured."""
        self._console = Console(file=_WholeWrites(stream), highlight=False)  # type: ignore[arg-type]  # what rich uses of a stream
        self._live = Live(console=self._console, auto_refresh=False)
        self._stream = stream
        self._echoed: bool | None = None

    def __enter__(self) -> Self:
        """Hide the cursor."""
        self._echoed = _echo_controls(self._stream, on=False)
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Show the cursor again, below the last picture."""
        try:
            self._live.stop()
        finally:
            if self._echoed:
                _echo_controls(self._stream, on=True)

    def draw(self, picture: Callable[[ConsoleDimensions], RenderableType]) -> None:
        """Draw what `picture` makes of the terminal's size."""
        self._live.update(picture(self._console.size), refresh=True)


class LiveDisplay(LiveScreen):
    """The picture of a run."""

    def show(self, view: RunView) -> None:
        """Draw this moment, its events at the time of this machine's clock."""
        events = tuple(replace(event, time=event.time.astimezone()) for event in view.events)
        local = replace(view, events=events)
        self.draw(lambda room: frame(local, width=room.width, height=room.height))


def _echo_controls(terminal: TextIO, *, on: bool) -> bool | None:
    """Let a terminal show keys such as Ctrl-C as ^C, or not; answers whether it did so before.

    None: it is no terminal that can be told, or it is gone.
    """
    try:
        attributes = termios.tcgetattr(terminal.fileno())
        local = attributes[_LOCAL_FLAGS]
        attributes[_LOCAL_FLAGS] = local | termios.ECHOCTL if on else local & ~termios.ECHOCTL
        termios.tcsetattr(terminal.fileno(), termios.TCSANOW, attributes)
    except (termios.error, io.UnsupportedOperation, OSError):
        return None
    return bool(local & termios.ECHOCTL)
