"""Whether a trainer's Session is live, for the readiness probe of its pod.

A trainer renews a file in its folder with every heartbeat; whoever runs it looks how old that is.
Imports nothing heavy: a probe runs every few seconds.
"""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

READY = "ready"
# Several heartbeats; the same as whoever runs trainers as processes waits.
MAX_AGE = timedelta(seconds=30)


def is_ready(directory: Path) -> bool:
    """The trainer that works in `directory` has had a Session within `MAX_AGE`."""
    try:
        renewed_at = (directory / READY).stat().st_mtime
    except OSError:
        return False
    return time.time() - renewed_at <= MAX_AGE.total_seconds()
