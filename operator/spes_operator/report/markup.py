"""Builds HTML in which foreign text cannot become markup: all but `Markup` is escaped. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple, NewType

# HTML that is safe as it is.
Markup = NewType("Markup", str)


class Row(NamedTuple):
    """One line of a table."""

    cells: Sequence[Markup]
    warning: bool = False


def text(value: object) -> Markup:
    """Return any text, escaped."""
    return Markup(escape(str(value), quote=True))


def tag(name: str, *parts: Markup, classes: str = "") -> Markup:
    """Return an element around the parts."""
    opening = f'{name} class="{escape(classes, quote=True)}"' if classes else name
    return Markup(f"<{opening}>{''.join(parts)}</{name}>")


def join(parts: Iterable[Markup]) -> Markup:
    """Return the parts, one per line."""
    return Markup("\n".join(parts))


def table(heads: Sequence[str], rows: Iterable[Row], *, numbers: int = 0) -> Markup:
    """Return a table that scrolls sideways if it must; its last `numbers` columns are numbers."""
    classes = [""] * (len(heads) - numbers) + ["number"] * numbers
    head = join(tag("th", text(h), classes=c) for h, c in zip(heads, classes, strict=True))
    body = join(
        tag(
            "tr",
            *(tag("td", cell, classes=c) for cell, c in zip(row.cells, classes, strict=True)),
            classes="warning" if row.warning else "",
        )
        for row in rows
    )
    whole = tag("table", tag("thead", tag("tr", head)), tag("tbody", body))
    return tag("div", whole, classes="scroll")
