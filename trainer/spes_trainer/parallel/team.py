"""Rank 0's side: starts the other ranks of a peer, tells them what to do, ends them.

The process that talks to the sync server is rank 0 and the parent of the others. Commands go down
the pipe that is a follower's standard input, so an idle follower waits without a time limit, and
learns of its leader's death, however sudden, by the end of the pipe. If a follower ends on its own,
the peer's process ends too, with exit code 1: its replacement goes on from the last checkpoint.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, cast

from spes_trainer.commands import Command, encode
from spes_trainer.errors import RankLostError
from spes_trainer.parallel.group import joined, require_devices
from spes_trainer.ranks import Ranks

logger = logging.getLogger(__name__)

_FOLLOWER = "spes_trainer.parallel.follower"
_EXIT_FAILED = 1
# A follower that was told of the end has nothing left to do but to exit.
_END_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a follower needs to build its share; the first line that it reads."""

    settings: str
    """Canonical JSON of SpesJobSpec."""
    directory: str
    data_root: str
    document_end: int | None
    size: int
    """How many ranks there are."""
    rank: int = 0
    meeting: str = ""
    """The file in which the ranks find each other."""


def _end_this_process() -> None:
    """At once: the main thread may wait for the lost rank, and nothing it could save is valid."""
    os._exit(_EXIT_FAILED)


class Team:
    """Implements `commands.Others`."""

    def __init__(self, followers: Mapping[int, subprocess.Popen[str]], ranks: Ranks) -> None:
        """The followers have met their leader."""
        self.ranks = ranks
        self._followers = followers

    def tell(self, command: Command[object]) -> None:
        """Send a command to all.

        Raises:
            RankLostError: one of them has ended.
        """
        line = encode(command)
        for rank, follower in self._followers.items():
            _send(rank, follower, line)


@contextmanager
def team(call: Call, *, when_lost: Callable[[], None] = _end_this_process) -> Iterator[Team]:
    """Start the other ranks and lead them while the block runs.

    Args:
        call: For all of them; rank and meeting are filled in here.
        when_lost: Called once a follower has ended on its own.

    Raises:
        ConfigError: the machine has GPUs, and fewer than ranks.
    """
    require_devices(call.size)
    with tempfile.TemporaryDirectory(prefix="spes-ranks-") as folder:
        meeting = Path(folder) / "meeting"
        with (
            _followers(call, meeting, when_lost) as followers,
            joined(meeting, rank=0, size=call.size) as ranks,
        ):
            logger.info("ranks have met processes=%d", call.size)
            yield Team(followers, ranks)


@contextmanager
def _followers(
    call: Call, meeting: Path, when_lost: Callable[[], None]
) -> Iterator[dict[int, subprocess.Popen[str]]]:
    followers: dict[int, subprocess.Popen[str]] = {}
    ending = threading.Event()
    watches = []
    try:
        for rank in range(1, call.size):
            # A session of its own: Ctrl-C reaches the leader alone, which decides.
            followers[rank] = follower = subprocess.Popen(  # noqa: S603 - our own module
                (sys.executable, "-m", _FOLLOWER),
                stdin=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            own = asdict(call) | {"rank": rank, "meeting": str(meeting)}
            _send(rank, follower, json.dumps(own) + "\n")
            watch = threading.Thread(
                target=_watch, args=(rank, follower, ending, when_lost), daemon=True
            )
            watch.start()
            watches.append(watch)
        yield followers
    finally:
        ending.set()
        for follower in followers.values():
            with suppress(BrokenPipeError):
                _pipe(follower).close()
        for rank, follower in followers.items():
            _reap(rank, follower)
        for watch in watches:
            watch.join(_END_SECONDS)


def _watch(
    rank: int,
    follower: subprocess.Popen[str],
    ending: threading.Event,
    when_lost: Callable[[], None],
) -> None:
    code = follower.wait()
    if code == 0 and ending.is_set():
        return
    logger.error(
        "a process of this peer has ended, so the peer ends rank=%d pid=%d code=%d; "
        "its replacement goes on from the last checkpoint",
        rank,
        follower.pid,
        code,
    )
    if not ending.is_set():
        when_lost()


def _reap(rank: int, follower: subprocess.Popen[str]) -> None:
    try:
        follower.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        logger.warning("a process of this peer did not end and is killed rank=%d", rank)
        follower.kill()
        follower.wait()


def _send(rank: int, follower: subprocess.Popen[str], line: str) -> None:
    try:
        _pipe(follower).write(line)
        _pipe(follower).flush()
    except BrokenPipeError as error:
        raise RankLostError(f"process {follower.pid} of rank {rank} has ended") from error


def _pipe(follower: subprocess.Popen[str]) -> IO[str]:
    return cast(IO[str], follower.stdin)
