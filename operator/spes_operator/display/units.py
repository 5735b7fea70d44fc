"""Numbers, times and foreign text as people read them. Pure; for the displays and the report."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from spes_api.ranges import format_ranges

_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def count(number: float | None) -> str:
    """Return a whole number with thousands separators: 9,812; "-" if it is unknown."""
    return "-" if number is None else f"{number:,.0f}"


def compact(number: int) -> str:
    """Return a count that takes little room: 942,080; 409.6 M; 1.2 B."""
    if number >= 10**9:
        return f"{number / 10**9:,.1f} B"
    return f"{number / 10**6:,.1f} M" if number >= 10**7 else count(number)


def size(num_bytes: float) -> str:
    """Return a size with three digits in decimal units, as networks count: 12.3 MB."""
    value = float(num_bytes)
    for unit in _BYTE_UNITS:
        if abs(value) < 999.5 or unit == _BYTE_UNITS[-1]:  # noqa: PLR2004 - rounds to four digits
            break
        value /= 1000
    digits = 0 if unit == "B" or abs(value) >= 99.95 else 1  # noqa: PLR2004 - three digits
    return f"{value:.{digits}f} {unit}"


def clock(duration: timedelta) -> str:
    """Return a duration as 0:42, 12:05, 3:07:20 or 2 d 03:07."""
    seconds = max(0, int(duration.total_seconds()))
    hours, minutes = seconds // _HOUR, seconds // _MINUTE % 60
    if seconds >= _DAY:
        return f"{seconds // _DAY} d {hours % 24:02}:{minutes:02}"
    if hours:
        return f"{hours}:{minutes:02}:{seconds % 60:02}"
    return f"{minutes}:{seconds % 60:02}"


def ranges(experts: Iterable[int]) -> str:
    """Return expert ids as ranges: 0-3,6; "-" if there are none."""
    return format_ranges(experts) or "-"


def printable(text: str) -> str:
    """Return foreign text on one line without control characters: a terminal would obey them."""
    return "".join(c if c.isprintable() else " " for c in text)


def thin(length: int, limit: int) -> list[int]:
    """Return at most `limit` indices of a sequence, evenly spread, with the first and last."""
    if length <= limit:
        return list(range(length))
    return [place * (length - 1) // (limit - 1) for place in range(limit)]
