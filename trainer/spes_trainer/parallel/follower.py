"""A rank other than 0: builds its share of the model and does what rank 0 says until it is gone.

Started by `team`, never by a person. Standard input brings first what to build, then one command a
line; its end is the leader's end, whether it finished or was killed.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from spes_api.job import SpesJobSpec

from spes_trainer.commands import NOTHING, decode
from spes_trainer.errors import DiskFullError, NonFiniteError
from spes_trainer.parallel.group import joined
from spes_trainer.parallel.team import Call
from spes_trainer.share import Share, Workplace

logger = logging.getLogger(__name__)

# Commands that may wait; the leader waits with the next one.
_MAX_WAITING = 64
# After the leader is gone, for what is being done. It may hang in a call to the leader.
_END_SECONDS = 15.0
# For a leader that has failed in the same way, and says so better.
_PATIENCE_SECONDS = 5.0


class Lines:
    """The leader's lines, read by a thread, so that its end is noticed in the middle of a step."""

    def __init__(self, source: TextIO) -> None:
        """Start reading."""
        self.ended = threading.Event()
        self._source = source
        self._waiting: queue.Queue[str | None] = queue.Queue(_MAX_WAITING)
        threading.Thread(target=self._read, name="leader", daemon=True).start()

    def __iter__(self) -> Iterator[str]:
        """Yield lines until the leader is gone."""
        while (line := self._waiting.get()) is not None:
            yield line

    def _read(self) -> None:
        for line in self._source:
            self._waiting.put(line)
        self.ended.set()
        threading.Thread(target=self._end, name="end", daemon=True).start()
        self._waiting.put(None)

    @staticmethod
    def _end() -> None:
        threading.Event().wait(_END_SECONDS)
        os._exit(1)


def follow(lines: Lines) -> None:
    """Build, then run every command."""
    commands = iter(lines)
    call = Call(**json.loads(next(commands)))
    logging.basicConfig(
        level=logging.INFO,
        format=f"%(asctime)s %(levelname)s rank={call.rank} %(message)s",
        stream=sys.stderr,
    )
    with joined(Path(call.meeting), rank=call.rank, size=call.size) as ranks:
        workplace = Workplace(
            directory=Path(call.directory),
            data_root=Path(call.data_root),
            stop=threading.Event(),  # rank 0 alone is told to stop
        )
        spec = SpesJobSpec.model_validate_json(call.settings)
        share = Share(spec, workplace, document_end=call.document_end, ranks=ranks)
        for line in commands:
            try:
                decode(line).run(share, NOTHING)
            except (NonFiniteError, DiskFullError) as error:
                # All ranks have failed alike; the leader decides what becomes of it.
                logger.warning("command failed on all ranks: %s", error)


def main() -> None:
    """Follow until the end of standard input."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    lines = Lines(sys.stdin)
    try:
        follow(lines)
    except Exception:
        if lines.ended.is_set():
            logger.info("leader is gone")
        else:
            logger.exception("rank failed")
        lines.ended.wait(_PATIENCE_SECONDS)
        sys.exit(1)


if __name__ == "__main__":
    main()
