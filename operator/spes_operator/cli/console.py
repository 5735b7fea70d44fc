"""Where commands print for people: standard output, as wide as its terminal."""

from __future__ import annotations

import sys

from rich.console import Console

# Columns when nobody's terminal says otherwise: enough for every table.
_PLAIN_WIDTH = 120


def stdout_console() -> Console:
    """Standard output as it is now."""
    return Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH, highlight=False)
