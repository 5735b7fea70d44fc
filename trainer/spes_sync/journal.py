"""The journal: one JSON line per round and state change, with the time in UTC. Only appended to.

It is for people and reports; nothing is recovered from it. A full disk costs lines, not rounds.
"""

from __future__ import annotations

import json
import logging
import reprlib
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

logger = logging.getLogger(__name__)


class Journal:
    """Appends events to `journal.jsonl`."""

    def __init__(
        self, path: Path, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """Open the file; a line that a crash cut short is ended."""
        torn = _is_torn(path)
        self._clock = clock
        self._lock = threading.Lock()
        self._file = path.open("a", encoding="utf-8")
        if torn:
            self._file.write("\n")

    def write(self, event: str, **fields: object) -> None:
        """Append one event."""
        line = json.dumps({"time": self._clock().isoformat(), "event": event, **fields})
        if logger.isEnabledFor(logging.INFO):
            said = " ".join(f"{k}={reprlib.repr(v)}" for k, v in fields.items())
            logger.info("%s %s", event, said)
        try:
            with self._lock:
                self._file.write(line + "\n")
                self._file.flush()
        except OSError as error:
            logger.warning("journal line lost event=%s reason=%s", event, error)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _is_torn(path: Path) -> bool:
    if not path.exists() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read() != b"\n"
