"""Turns matplotlib figures into SVG that is part of a page: in its colours and its font.

Figures are drawn in two stand-in colours, which become the page's own, so plots go
dark and light with it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape

import matplotlib as mpl
from matplotlib.figure import Figure

# Stand-ins; no peer has these colours.
INK, FAINT = "#010203", "#040506"
_PAGE_COLOURS = {INK: "var(--ink)", FAINT: "var(--line)"}
# Inches. Small, so that the text is still readable when a phone scales the plot down.
SIZE = (5.6, 3.3)

_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "spes",
    "path.simplify_threshold": 0.5,
    "font.size": 10.5,
    "font.family": "sans-serif",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
}


@contextmanager
def page_style() -> Iterator[None]:
    """Draw in the page's style while this is open."""
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]  # the stubs list no keys by name
        yield


def to_svg(figure: Figure, *, label: str) -> str:
    """Return the figure as an inline <svg> that fills its column; `label` is for screen readers."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True)
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    used = set(re.findall(r"#(\w+)[\")]", text))
    text = re.sub(r' id="([^"]*)"', lambda found: found.group() if found[1] in used else "", text)
    box = re.search(r'viewBox="[^"]*"', text)
    assert box  # matplotlib always writes one
    head = f'<svg {box.group()} role="img" aria-label="{escape(label, quote=True)}">'
    text = re.sub(r"<svg[^>]*>", lambda _: head, text, count=1)
    for stand_in, colour in _PAGE_COLOURS.items():
        text = text.replace(stand_in, colour)
    return re.sub(r"\n\s*", "\n", text).strip()
