"""The ownership strip: all experts in a row, each in the colour and letter of its owner. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from rich.text import Text

from spes_operator.display.palette import Mark, chip

_WIDEST_CELL = 4  # columns; wider cells look like blocks of their own
_NUMBERED_CELL = 3  # columns from which expert ids fit above the letters
_PARKED = "·"


class OwnsExperts(Protocol):
    """A peer, whatever else is known of it."""

    @property
    def peer(self) -> str:
        """Its id."""

    @property
    def experts(self) -> Sequence[int]:
        """That it trains."""


def ownership_strip(
    peers: Iterable[OwnsExperts], num_experts: int, mark: Mapping[str, Mark], *, width: int
) -> list[Text]:
    """Return lines of at most `width` columns; an expert without owner shows as a dot."""
    owner = {expert: peer.peer for peer in peers for expert in peer.experts}
    cell = max(1, min(_WIDEST_CELL, width // max(1, num_experts)))
    cells = [_cell(mark.get(owner.get(expert, "")), cell) for expert in range(num_experts)]
    per_line = width // cell
    lines = [
        Text.assemble(*cells[start : start + per_line]) for start in range(0, num_experts, per_line)
    ]
    if cell < _NUMBERED_CELL:
        return lines
    ids = "".join(f"{expert:^{cell}}" for expert in range(num_experts))
    return [Text(ids, style="dim"), *lines]


def _cell(mark: Mark | None, width: int) -> Text:
    if mark is None:
        return Text(f"{_PARKED:^{width}}", style="dim")
    return Text(f"{mark.letter:^{width}}", style=chip(mark))
