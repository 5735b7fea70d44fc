"""Letters, colours and numbers as people read them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spes_api.ranges import parse_ranges
from spes_operator.display.palette import COLOURS, marks
from spes_operator.display.units import clock, compact, count, printable, ranges, size, thin


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("colour", COLOURS)
def test_colour_stands_out_on_white(colour):
    """3:1 is what WCAG 2 asks of graphics, and of bold letters upon them."""
    assert 1.05 / (luminance(colour) + 0.05) >= 3


@pytest.mark.parametrize("colour", COLOURS)
def test_colour_stands_out_on_the_dark_page(colour):
    assert (luminance(colour) + 0.05) / (luminance("#14171a") + 0.05) >= 3


def test_a_later_peer_changes_nobodys_mark():
    before, after = marks(["b", "a"]), marks(["b", "a", "0"])
    assert {peer: after[peer] for peer in before} == before


def test_62_peers_have_letters_of_their_own():
    assert len({mark.letter for mark in marks(map(str, range(62))).values()}) == 62


def test_numbers_read_well():
    assert (count(9812.4), count(None)) == ("9,812", "-")
    assert [compact(n) for n in (942_080, 409_600_000, 10**12)] == [
        "942,080",
        "409.6 M",
        "1,000.0 B",
    ]
    assert [size(n) for n in (0, 999, 1000, 99_949, 99_950, 999_499, 999_500, 10**15)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "99.9 kB",
        "100 kB",
        "999 kB",
        "1.0 MB",
        "1.0 PB",
    ]
    seconds = (-1, 42, 725, 11_240, 183_600)
    assert [clock(timedelta(seconds=s)) for s in seconds] == [
        "0:00",
        "0:42",
        "12:05",
        "3:07:20",
        "2 d 03:00",
    ]
    assert printable("a\x1b[2J\nb") == "a [2J b"


@given(st.sets(st.integers(0, 300)))
def test_ranges_are_read_back(experts):
    text = ranges(experts)
    assert parse_ranges("" if text == "-" else text) == experts


@given(st.integers(2, 10_000), st.integers(2, 500))
def test_thinning_keeps_ends_order_and_limit(length, limit):
    kept = thin(length, limit)
    assert kept[0] == 0
    assert kept[-1] == length - 1
    assert len(kept) == min(length, limit)
    assert kept == sorted(set(kept))
