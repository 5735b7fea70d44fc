"""One figure of a report, as the page shows it. Apart from `plots`, which needs matplotlib."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A titled picture."""

    title: str
    caption: str
    svg: str
    """An <svg> element, safe to put into a page."""
