"""The live screen on a terminal."""

from __future__ import annotations

import io
import os
import termios
import time
from contextlib import suppress

import pytest
from builders.run_view import make_event, make_view
from spes_operator.display import open_display
from spes_operator.display.live import LiveDisplay


class Terminal(io.StringIO):
    """Records every write; says that it is a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.writes.append(text)
        return super().write(text)


@pytest.fixture(autouse=True)
def _usual_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)


def test_a_picture_is_one_write_that_appears_at_once():
    terminal = Terminal()
    with LiveDisplay(terminal) as display:
        display.show(make_view())
        before = len(terminal.writes)
        display.show(make_view(round=15))
        (write,) = terminal.writes[before:]
    assert write.startswith("\x1b[?2026h")
    assert write.endswith("\x1b[?2026l")


def test_the_cursor_comes_back_after_an_error():
    terminal = Terminal()
    with suppress(KeyboardInterrupt), LiveDisplay(terminal) as display:
        display.show(make_view())
        raise KeyboardInterrupt
    assert "\x1b[?25h" in terminal.getvalue()


def echoes_controls(terminal: int) -> bool:
    return bool(termios.tcgetattr(terminal)[3] & termios.ECHOCTL)


def test_the_terminal_shows_no_control_keys_in_the_picture():
    """^C behind a full line would move the cursor, and an old title would stay."""
    keyboard, screen = os.openpty()
    with os.fdopen(keyboard, "rb"), os.fdopen(screen, "w", encoding="utf-8") as terminal:
        assert echoes_controls(screen)
        with suppress(KeyboardInterrupt), LiveDisplay(terminal):
            assert not echoes_controls(screen)
            raise KeyboardInterrupt
        assert echoes_controls(screen)


def test_no_color_is_honoured(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    with LiveDisplay(terminal) as display:
        display.show(make_view())
    assert "38;" not in terminal.getvalue()
    assert "48;" not in terminal.getvalue()


def test_plain_wins_over_a_terminal():
    assert isinstance(open_display(stream=Terminal()), LiveDisplay)
    assert not isinstance(open_display(plain=True, stream=Terminal()), LiveDisplay)


def test_events_have_the_time_of_this_machine(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    terminal = Terminal()
    with LiveDisplay(terminal) as display:
        display.show(make_view(events=(make_event("uni-d joins"),)))
    monkeypatch.undo()
    time.tzset()
    assert "19:30:00" in terminal.getvalue()
