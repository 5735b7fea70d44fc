"""The end of a process's log, for messages that tell why it ended."""

from __future__ import annotations

import os
from pathlib import Path

# Enough for any line that is worth repeating in a condition.
_TAIL_BYTES = 4096
_MAX_LINE = 300


def last_line(log: Path) -> str:
    """The last line that is not blank, cut to a readable length; "" if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_MAX_LINE] if lines else ""
