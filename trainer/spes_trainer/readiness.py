"""Whether a trainer's Session is live, for the readiness probe of its pod.

A trainer renews a file in its folder with every heartbeat; whoever runs it looks how old that is.
Imports nothing heavy: a probe runs every few seconds.
"""

from __future__ import annotations

import time
from pathlib import Path

from spes_api.readiness import READY_FILE, READY_MAX_AGE


def is_ready(directory: Path) -> bool:
    """The trainer that works in `directory` has had a Session lately."""
    try:
        renewed_at = (directory / READY_FILE).stat().st_mtime
    except OSError:
        return False
    return time.time() - renewed_at <= READY_MAX_AGE.total_seconds()
