"""How one peer process finds its server, its secrets and its directory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

# A Join is quick; a server that takes longer is stuck.
CALL_TIMEOUT = timedelta(seconds=20)
# A Pull that delivers nothing for this long is broken off and resumed.
PULL_PROGRESS_TIMEOUT = timedelta(seconds=5)
# A Push that moves nothing for this long is broken off and sent again; it includes the server's
# check of the whole payload.
PUSH_PROGRESS_TIMEOUT = timedelta(seconds=30)


def _nothing() -> None:
    """Default of `while_live`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerOptions:
    """What the command line of a peer says."""

    directory: Path  # of this peer alone: token, spools, checkpoints
    peer: str
    address: str  # HOST:PORT of the sync server
    ca_file: Path
    token_file: Path  # the first one-time token
    processes: int = 1
    # How long a token that the server does not accept may be replaced by a new one in its file.
    token_patience: timedelta = timedelta(seconds=60)
    # Called at every heartbeat while the Session is live, from another thread.
    while_live: Callable[[], None] = _nothing
