"""Plain lines: each thing once."""

from __future__ import annotations

import io
import os
from dataclasses import replace

from builders.run_view import make_event, make_view
from spes_operator.display import WhileWatched, open_display
from spes_operator.display.plain import PlainDisplay


def printed(*views) -> list[str]:
    stream = io.StringIO()
    with PlainDisplay(stream) as display:
        for view in views:
            display.show(view)
    return stream.getvalue().splitlines()


def test_a_round_is_one_line():
    before = make_view(events=())
    after = replace(before, version=14, round=15, tokens=450_000)
    (_, line) = printed(before, before, after, after)
    assert line == (
        "[   1:42] round 14 committed, 450,000 of 900,000 tokens (50%), "
        "held-out loss 2.250 (round 13), 8,025 tokens/s, 2 peers"
    )


def test_rounds_between_two_views_share_a_line():
    before = make_view(events=())
    line = printed(before, replace(before, version=16))[-1]
    assert "rounds 14-16 committed" in line


def test_an_event_is_one_line_though_old_ones_are_dropped():
    events = tuple(make_event(f"event {n}", second=n) for n in range(5))
    first, second = make_view(events=events[:3]), make_view(events=events[2:])
    lines = printed(first, second, second)
    assert [line.split("] ")[1] for line in lines if "event" in line] == [
        f"event {n}" for n in range(5)
    ]


def test_a_problem_is_said_once_and_again_if_it_comes_back():
    well, held = make_view(events=()), make_view(events=(), problem="Held.", hint="Wait.")
    lines = [line for line in printed(well, held, held, well, held) if "Held" in line]
    assert lines == ["[   1:42] ! Held. Wait."] * 2


def test_a_problem_that_is_an_event_too_is_said_once():
    before = make_view(events=())
    held = make_view(events=(make_event("Held."),), problem="Held.")
    lines = [line for line in printed(before, held, held) if "Held" in line]
    assert lines == ["[   1:42] Held."]


def test_what_an_event_says_is_not_said_by_a_phase_too():
    views = [
        make_view(events=(), version=-1, phase="starting the sync server"),
        make_view(
            events=(make_event("the sync server is starting"),),
            version=-1,
            phase="starting the sync server",
        ),
    ]
    assert [line.partition("] ")[2] for line in printed(*views)] == ["the sync server is starting"]


def test_output_that_is_no_terminal_gets_plain_lines():
    assert isinstance(open_display(stream=io.StringIO()), PlainDisplay)


def test_characters_that_the_stream_cannot_encode_are_replaced():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    PlainDisplay(stream).show(make_view(version=0, events=(make_event("München \x1b[2J"),)))
    assert raw.getvalue() == b"[   1:42] M?nchen  [2J\n"


def test_a_reader_that_went_away_ends_no_run():
    inlet, outlet = os.pipe()
    os.close(inlet)
    with os.fdopen(outlet, "w", encoding="utf-8") as stream:
        with WhileWatched(PlainDisplay(stream), stream) as display:
            display.show(make_view(events=()))
            display.show(make_view(events=(make_event("unheard"),)))
        stream.write("what is printed afterwards vanishes")
