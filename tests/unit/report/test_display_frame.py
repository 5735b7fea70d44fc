"""The picture of a run on a terminal: it fits, needs no colours, says what is wrong."""

from __future__ import annotations

import io
from datetime import timedelta

import pytest
from builders.run_view import make_event, make_peer, make_view
from rich.console import Console
from spes_operator.display.frame import frame, sparkline


def drawn(view, *, width=80, height=40, **console) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width, height=height, **console).print(
        frame(view, width=width, height=height)
    )
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 81, 100, 140, 250])
def test_every_row_takes_one_line(width):
    view = make_view(
        tokens_per_second=1_234_567.0,
        tokens=9_876_543_210,
        max_tokens=10**12,
        events=(make_event("uni-c.0 joined"),),
    )
    lines = drawn(view, width=width)

    assert max(map(len, lines)) <= width
    assert len(lines) == len(drawn(view, width=400))


def test_a_long_event_is_shown_whole():
    text = (
        "epoch 2: 2 experts moved (at least 2 had to): " + "6 uni-c.0 to uni-a.0, " * 6 + "the end"
    )
    view = make_view(events=(make_event("before", second=1), make_event(text, second=60)))
    lines = drawn(view)
    first = next(n for n, line in enumerate(lines) if "epoch 2: 2" in line)
    assert " ".join(line.strip() for line in lines[first:])[len("14:01:00 ") :] == text
    assert "before" in lines[first - 1]


def test_an_event_longer_than_its_place_is_cut_with_a_mark():
    view = make_view(events=(make_event("an endless story " * 100),))
    lines = drawn(view, height=24)
    assert len(lines) <= 24
    assert lines[-1].endswith("…")
    assert "an endless story" in lines[-2]


def test_largest_usual_numbers_fit_into_80_columns():
    peer = make_peer(
        "uni-heidelberg.0",
        experts=(0, 2, 4, 6),
        tokens_per_second=123_456,
        bytes_up=123_400_000_000,
        bytes_down=123_400_000_000,
    )
    (row,) = [line for line in drawn(make_view(peers=(peer,))) if "123,456" in line]
    assert "0,2,4,6" in row
    assert row.count("123 GB") == 2


def test_unknown_numbers_are_dashes():
    peer = make_peer(
        "uni-d.0",
        tokens_per_second=None,
        loss=None,
        bytes_up=0,
        bytes_down=0,
        waited=timedelta(),
    )
    (row,) = [line for line in drawn(make_view(peers=(peer,))) if "uni-d.0" in line]
    assert row.split()[-5:] == ["-"] * 5


def test_letters_say_who_owns_what_without_colours():
    strip = next(line for line in drawn(make_view(), no_color=True) if "A   A" in line)
    assert strip.split() == ["A"] * 4 + ["B"] * 4


def test_expert_without_owner_is_a_dot():
    strip = drawn(make_view(peers=(make_peer("uni-a.0", experts=(0, 2)),), num_experts=3))
    assert ["A", "·", "A"] in [line.split() for line in strip]


def test_many_experts_take_several_lines():
    peers = (make_peer("uni-a.0", experts=tuple(range(256))),)
    lines = drawn(make_view(peers=peers, num_experts=256))
    assert sum(line.count("A") for line in lines if "AAAA" in line) == 256


def test_held_round_says_why_and_what_to_do():
    view = make_view(problem="Round 14 is held: uni-b.0 has not pushed.", hint="Wait 10 s.")
    lines = drawn(view)
    assert lines[1:3] == ["! Round 14 is held: uni-b.0 has not pushed.", "  Wait 10 s."]


@pytest.mark.parametrize("height", [24, 40])
def test_picture_of_many_peers_is_no_taller_than_the_screen(height):
    peers = tuple(make_peer(f"uni-{n}.0", experts=(n,), problem="late" * 30) for n in range(64))
    events = tuple(make_event(f"event {n}", second=n) for n in range(50))
    view = make_view(peers=peers, num_experts=64, events=events, problem="Held.", hint="Wait.")

    lines = drawn(view, height=height)

    assert len(lines) <= height
    assert any("more" in line for line in lines)
    assert "event 49" in lines[-1]


def test_markup_and_control_characters_of_others_do_nothing():
    view = make_view(events=(make_event("\x1b[2J[red]gone[/red]"),), phase="a\nb")
    lines = drawn(view)
    assert lines[-1].endswith("[2J[red]gone[/red]")
    assert "\x1b" not in "".join(lines)


def test_view_of_a_run_that_has_not_begun_is_drawn():
    view = make_view(round=0, version=-1, held_out=(), peers=(), events=(), tokens=0)
    assert any("not begun" in line for line in drawn(view))


def test_sparkline_follows_the_values():
    assert sparkline([5.0, 4.0, 3.0], width=40) == "█▅▁"
    assert sparkline([2.0], width=40) == "▁"
    assert len(sparkline(range(1000), width=40)) == 40
