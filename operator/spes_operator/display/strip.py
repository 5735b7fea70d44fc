"""The ownership strip: all experts in a row, each in the colour and letter of its owner. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from spes_operator.display.palette import Mark, chip
from spes_operator.display.view import RunView

_WIDEST_CELL = 4  # columns; wider cells look like blocks of their own
_NUMBERED_CELL = 3  # columns from which expert ids fit above the letters
_PARKED = "·"


def ownership_strip(view: RunView, mark: Mapping[str, Mark], *, width: int) -> list[Text]:
    """Return lines of at most `width` columns; an expert without owner shows as a dot."""
    owner = {expert: peer.peer for peer in view.peers for expert in peer.experts}
    cell = max(1, min(_WIDEST_CELL, width // max(1, view.num_experts)))
    cells = [_cell(mark.get(owner.get(expert, "")), cell) for expert in range(view.num_experts)]
    per_line = width // cell
    lines = [
        Text.assemble(*cells[start : start + per_line])
        for start in range(0, view.num_experts, per_line)
    ]
    if cell < _NUMBERED_CELL:
        return lines
    ids = "".join(f"{expert:^{cell}}" for expert in range(view.num_experts))
    return [Text(ids, style="dim"), *lines]


def _cell(mark: Mark | None, width: int) -> Text:
    if mark is None:
        return Text(f"{_PARKED:^{width}}", style="dim")
    return Text(f"{mark.letter:^{width}}", style=chip(mark))
