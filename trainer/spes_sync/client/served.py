"""Which versions the server has, and what is in them, as far as a peer was told. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from spes_proto.v1 import sync_pb2

from spes_sync.bases import NO_VERSION
from spes_sync.client.actions import Rebase


class Served:
    """The commits that one peer knows of, from the version it holds on."""

    def __init__(self, peer: str) -> None:
        """Know of none."""
        self._peer = peer
        self.latest = NO_VERSION
        self.global_tokens = 0  # of the latest version
        self._said = NO_VERSION
        self._commits: dict[int, sync_pb2.Committed] = {}

    def connected(self, version: int) -> None:
        """A Session begins, in which the peer has said that it holds `version`."""
        self._said = version

    def committed(self, committed: sync_pb2.Committed) -> None:
        """The server has told of a version."""
        # A version below what the peer has said it holds: the server has lost the ones since.
        if committed.version >= self.latest or committed.version < self._said:
            self.latest = committed.version
            self.global_tokens = committed.global_tokens
        self._commits[committed.version] = committed

    def reached(self, version: int) -> None:
        """The peer holds this version; what led to it is of no use any more."""
        self._commits = {v: c for v, c in self._commits.items() if v > version}

    def after(self, version: int) -> sync_pb2.Committed | None:
        """What became of pushes on a version; None if that is not known."""
        return self._commits.get(version + 1)

    def behind(self, version: int) -> Rebase | None:
        """How a peer that holds `version` comes to the latest; None: it is there."""
        if self.latest in (version, NO_VERSION):
            return None
        # A server that has lost versions has no delta for what this peer holds.
        return Rebase(have=version if version < self.latest else NO_VERSION, latest=self.latest)

    def hashes(self, version: int) -> dict[str, str]:
        """SHA-256 of each tensor of a version, as its commit says; {} if that is not known."""
        commit = self._commits.get(version)
        return {} if commit is None else {h.name: h.sha256 for h in commit.tensor_hashes}

    def counted(self, version: int) -> Iterator[tuple[int, frozenset[str]]]:
        """Which of this peer's pushes each version up to `version` contains, as far as it is known.

        Those of earlier processes of the peer are among them.
        """
        for reached, commit in sorted(self._commits.items()):
            if reached <= version:
                own = (row.sha256 for row in commit.included if row.peer == self._peer)
                yield reached, frozenset(own)

    def version_to_say(self, version: int, undecided: int | None) -> int:
        """The version that a heartbeat says of a peer that holds `version`.

        A relaunched peer can hold an older version than it has pushed on. It has to hear what
        became of that push, so it says the push's base until it knows, or knows the base is lost.

        Args:
            version: What it really holds.
            undecided: The newest base of a push that may or may not count.
        """
        if undecided is None or undecided <= version or self.after(undecided) is not None:
            return version
        return version if NO_VERSION < self.latest < undecided else undecided
