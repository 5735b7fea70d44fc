"""How long each expert stayed with each owner: the boxes of the ownership map. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spes_operator.display.units import thin

_MAX_BOXES = 4000  # about 0.6 MB of SVG


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """An expert had one owner from round `first` to round `last`."""

    expert: int
    peer: str
    first: int
    last: int
    moved: bool
    """Whether it came from another owner, or from none."""


def stays(ownership: Mapping[int, Mapping[int, str]]) -> list[Stay]:
    """Return every stay, by expert and round; if they are too many, as seen in fewer rounds."""
    rounds = sorted(ownership)
    found = _stays(ownership, rounds)
    if len(found) <= _MAX_BOXES:
        return found
    num_experts = len({stay.expert for stay in found})
    columns = max(2, _MAX_BOXES // num_experts)
    return _stays(ownership, [rounds[i] for i in thin(len(rounds), columns)])


def _stays(ownership: Mapping[int, Mapping[int, str]], rounds: list[int]) -> list[Stay]:
    found: list[Stay] = []
    for expert in sorted({expert for number in rounds for expert in ownership[number]}):
        owner, first = ownership[rounds[0]].get(expert), rounds[0]
        for number in [*rounds[1:], None]:
            now = None if number is None else ownership[number].get(expert)
            if number is not None and now == owner:
                continue
            last = rounds[-1] if number is None else number - 1
            if owner is not None:
                moved = first != rounds[0]
                found.append(Stay(expert=expert, peer=owner, first=first, last=last, moved=moved))
            if number is not None:
                owner, first = now, number
    return found
