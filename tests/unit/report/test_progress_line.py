"""How far something is: one line that is rewritten, or one line each."""

from __future__ import annotations

import io

import pytest
from spes_operator.display import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "plain"), [(io.StringIO(), False), (Terminal(), True)], ids=["pipe", "plain"]
)
def test_each_sentence_is_a_line(stream, plain):
    with ProgressLine(stream, plain=plain) as line:
        line.show("step 1")
        line.show("step 2\x1b[2J")
    assert stream.getvalue() == "step 1\nstep 2 [2J\n"


def test_a_terminal_sees_the_last_one_alone(monkeypatch):
    monkeypatch.setenv("COLUMNS", "12")
    terminal = Terminal()
    with ProgressLine(terminal, plain=False) as line:
        line.show("step 1")
        line.show("step 2 of very many")
    assert terminal.getvalue() == "\r\x1b[Kstep 1\r\x1b[Kstep 2 of v\n"


def test_nothing_shown_leaves_nothing():
    terminal = Terminal()
    with ProgressLine(terminal, plain=False):
        pass
    assert terminal.getvalue() == ""
