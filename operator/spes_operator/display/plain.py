"""Plain lines for logs, pipes and `--plain`: one per event, committed round and problem."""

from __future__ import annotations

from types import TracebackType
from typing import Self, TextIO

from spes_operator.display.units import clock, count, printable
from spes_operator.display.view import EventLine, RunView


class PlainDisplay:
    """Prints what is new since the last view; never moves the cursor, never colours."""

    def __init__(self, stream: TextIO) -> None:
        """Write to `stream`; characters that it cannot encode become `?`."""
        self._stream = stream
        self._version = 0
        self._problem = ""
        self._events: tuple[EventLine, ...] = ()

    def __enter__(self) -> Self:
        """Return self: lines need no preparation."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the lines as they are."""

    def show(self, view: RunView) -> None:
        """Print what is new. Phases are left to the events, which tell more."""
        happened = _new(self._events, view.events)
        for event in happened:
            self._line(view, f"{'! ' if event.warning else ''}{event.text}")
        if view.version > self._version:
            self._line(view, _rounds_line(self._version + 1, view))
        told = {self._problem, *(event.text for event in happened)}
        if view.problem and view.problem not in told:
            self._line(view, f"! {view.problem} {view.hint}".rstrip())
        self._version = max(self._version, view.version)
        self._problem, self._events = view.problem, view.events

    def _line(self, view: RunView, text: str) -> None:
        line = f"[{clock(view.elapsed):>7}] {printable(text)}\n"
        encoding = self._stream.encoding or "utf-8"
        self._stream.write(line.encode(encoding, errors="replace").decode(encoding))
        self._stream.flush()


def _new(before: tuple[EventLine, ...], now: tuple[EventLine, ...]) -> tuple[EventLine, ...]:
    """Return the events after the longest end of `before` that `now` starts with."""
    overlap = min(len(before), len(now))
    while overlap and before[-overlap:] != now[:overlap]:
        overlap -= 1
    return now[overlap:]


def _rounds_line(first: int, view: RunView) -> str:
    rounds = f"round {view.version}" if first == view.version else f"rounds {first}-{view.version}"
    share = f"{view.tokens / view.max_tokens:.0%}"
    parts = [
        f"{rounds} committed",
        f"{count(view.tokens)} of {count(view.max_tokens)} tokens ({share})",
    ]
    if view.held_out:
        last = view.held_out[-1]
        after = "" if last.version == view.version else f" (round {last.version})"
        parts.append(f"held-out loss {last.loss:.3f}{after}")
    if view.tokens_per_second:
        parts.append(f"{count(view.tokens_per_second)} tokens/s")
    parts.append(f"{sum(1 for peer in view.peers if peer.experts)} peers")
    return ", ".join(parts)
