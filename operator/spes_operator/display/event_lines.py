"""The latest events on the live screen, each as many lines as its sentence takes. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.text import Text

from spes_operator.display.units import printable
from spes_operator.display.view import EventLine

_TIME = len("12:34:56 ")
_NARROWEST = 20  # columns of a sentence, however narrow the screen


def latest_events(events: Sequence[EventLine], *, width: int, lines: int) -> list[Text]:
    """Return the last events that fit into so many lines; of the newest at least its beginning."""
    shown: list[Text] = []
    for event in reversed(events):
        sentence = _wrapped(event, width)
        if shown and len(shown) + len(sentence) > lines:
            break
        shown = [*sentence, *shown]
        if len(shown) > lines:
            shown = shown[:lines]
            shown[-1].append(" …")
            break
    return shown


def _wrapped(event: EventLine, width: int) -> list[Text]:
    said = f"{'! ' if event.warning else ''}{printable(event.text)}"
    # Two columns stay free for the mark of a sentence that is cut.
    parts = textwrap.wrap(said, max(_NARROWEST, width - _TIME - 2)) or [""]
    heads = [f"{event.time:%H:%M:%S} ", *[" " * _TIME] * (len(parts) - 1)]
    style = "yellow" if event.warning else ""
    rows = [
        Text.assemble((head, "dim"), (part, style)) for head, part in zip(heads, parts, strict=True)
    ]
    for row in rows:
        row.no_wrap, row.overflow = True, "ellipsis"
    return rows
