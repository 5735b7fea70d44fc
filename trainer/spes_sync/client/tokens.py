"""The one-time tokens of a peer: the kept next one first, then the one it was given.

Every Join uses a token up and returns the next, which is on disk before the session is first used:
a peer that dies at any moment has one that the server still accepts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from spes_api.private_files import write_private
from spes_proto.v1 import sync_pb2

from spes_sync.errors import TokenError

# Far more than "<id>.<secret>" needs; a file that is longer is no token.
_MAX_TOKEN_BYTES = 512


class TokenFiles:
    """Where the tokens of one peer lie."""

    def __init__(self, directory: Path, first: Path) -> None:
        """`directory` keeps the next token; `first` is the file that the peer was given."""
        self._kept = directory / "token"
        self._first = first

    def candidates(self) -> Iterator[str]:
        """The tokens worth trying now, in order; read anew each time, for files are replaced."""
        seen: set[str] = set()
        for path in (self._kept, self._first):
            token = _read(path)
            if token and token not in seen:
                seen.add(token)
                yield token

    def keep(self, token: str) -> None:
        """Replace the kept token atomically; only its owner can read it."""
        write_private(self._kept, token.encode())


def _read(path: Path) -> str:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return ""
    if len(text) > _MAX_TOKEN_BYTES:
        raise TokenError(sync_pb2.BAD_TOKEN, f"{path} holds no token (it has {len(text)} bytes)")
    return text.decode("ascii", errors="replace").strip()
