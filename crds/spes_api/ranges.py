"""Sets of expert ids as people read them: "0-3,6". Pure; for status rows, assignments, reports."""

from __future__ import annotations

import re
from collections.abc import Iterable

# The most experts a model may have; bounds what a hostile "0-999999999" can allocate.
MAX_ID = 4095

_RANGES = re.compile(r"\d{1,4}(?:-\d{1,4})?(?:,\d{1,4}(?:-\d{1,4})?)*", re.ASCII)


def format_ranges(ids: Iterable[int]) -> str:
    """The ids in order, runs joined: {0, 1, 2, 3, 6} is "0-3,6"; no ids is ""."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(ids)):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def parse_ranges(text: str) -> frozenset[int]:
    """The ids that `format_ranges` wrote.

    Raises:
        ValueError: not of that form, an id above `MAX_ID`, or a range that runs backwards.
    """
    if not text:
        return frozenset()
    if not _RANGES.fullmatch(text):
        raise ValueError(f'experts must be ranges such as "0-3,6" (got {text!r:.80})')
    ids: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if low > high or high > MAX_ID:
            raise ValueError(f"a range must rise and end at most at {MAX_ID} (got {part!r})")
        ids.update(range(low, high + 1))
    return frozenset(ids)
