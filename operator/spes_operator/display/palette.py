"""Which letter and colour stands for which peer, the same on the screen, in plots and in tables.

Pure. The letter always goes with the colour, so that nothing depends on seeing colours.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# At least 3:1 against white and against near-black, so that one set serves both backgrounds;
# neighbours differ in lightness, which most colour-blind people see.
COLOURS = (
    "#2f74c8",
    "#d9702a",
    "#117352",
    "#c23e9b",
    "#5597a0",
    "#7d4fe0",
    "#a8842b",
    "#cc2f46",
    "#4a9636",
    "#857a73",
)
_LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """How one peer is drawn."""

    letter: str
    colour: str
    """#rrggbb."""


def marks(peers: Iterable[str]) -> Mapping[str, Mark]:
    """Return a mark for each peer, by its place; letters and colours repeat at their end."""
    return {
        peer: Mark(letter=_LETTERS[place % len(_LETTERS)], colour=COLOURS[place % len(COLOURS)])
        for place, peer in enumerate(dict.fromkeys(peers))
    }


def chip(mark: Mark) -> str:
    """Return the terminal style of the letter on its colour."""
    return f"bold #ffffff on {mark.colour}"
