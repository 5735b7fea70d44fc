"""One-time join tokens and session keys: who may speak as which peer. Pure.

A token is "<id>.<secret>". The server keeps its SHA-256 alone, bound to a peer, with an expiry by
the server's own clock. A Join uses the token up and yields a session key and the next token. The
client may die before the answer is safely on its disk, so the token just used is accepted again
until the session it opened is first used; then it is used for good.

Time (Unix seconds of the server) and fresh secrets are arguments. The book lies in `tokens.json`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from spes_proto.v1 import sync_pb2

from spes_sync.errors import TokenError
from spes_sync.plan import PeerId

# Life of a token that the server issues at Join. A peer off for longer needs one from the hub.
NEXT_TOKEN_SECONDS = 86_400

_MAX_TOKEN_CHARS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What the server knows of a token."""

    peer: PeerId
    sha256: str
    expires_at: float
    used: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One process of a peer: the session its Join opened, and how."""

    peer: PeerId
    token: str
    """Id of the token that opened it; "" once the session was used."""
    next_token: str
    """Id of the token it was given."""
    caught_up: bool = False

    @property
    def unused(self) -> bool:
        """Whether the client may not have the answer to its Join."""
        return bool(self.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """Secrets drawn for one Join."""

    session_key: str
    next_token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBook:
    """All tokens by id, and the one session of each peer by the hash of its key."""

    tokens: Mapping[str, Token] = field(default_factory=dict)
    sessions: Mapping[str, Session] = field(default_factory=dict)

    def add(self, token_id: str, token: Token) -> TokenBook:
        """Accept a token from the hub; a known id is left as it is."""
        if token_id in self.tokens:
            return self
        return replace(self, tokens={**self.tokens, token_id: token})

    def redeem(self, text: str, *, peer: PeerId, now: float, fresh: Fresh) -> TokenBook:
        """Use a token for a Join: the peer's only session is then that of `fresh`.

        Raises:
            TokenError: BAD_TOKEN, TOKEN_USED or TOKEN_EXPIRED; nothing has changed.
        """
        token_id = self._check(text, peer, now)
        dropped = {hashed for hashed, s in self.sessions.items() if s.peer == peer}
        never_stored = {self.sessions[h].next_token for h in dropped if self.sessions[h].unused}
        tokens = {
            known: token
            for known, token in self.tokens.items()
            if known == token_id or (known not in never_stored and token.expires_at > now)
        }
        tokens[token_id] = replace(tokens[token_id], used=True)
        next_id = fresh.next_token.partition(".")[0]
        tokens[next_id] = Token(
            peer=peer, sha256=sha256(fresh.next_token), expires_at=now + NEXT_TOKEN_SECONDS
        )
        sessions = {h: s for h, s in self.sessions.items() if h not in dropped}
        sessions[sha256(fresh.session_key)] = Session(peer=peer, token=token_id, next_token=next_id)
        return TokenBook(tokens=tokens, sessions=sessions)

    def session(self, key: str) -> Session | None:
        """The session of this key, if it is the peer's newest."""
        return self.sessions.get(sha256(key))

    def touched(self, key: str) -> TokenBook:
        """The session is in use: the token that opened it cannot open another."""
        return self._with_session(key, token="")

    def caught_up(self, key: str) -> TokenBook:
        """Remember that this process has pulled a version."""
        return self._with_session(key, caught_up=True)

    def starting_anew(self) -> TokenBook:
        """The book for a job that begins again: nobody has caught up."""
        sessions = {h: replace(session, caught_up=False) for h, session in self.sessions.items()}
        return replace(self, sessions=sessions)

    @property
    def used_ids(self) -> tuple[str, ...]:
        """Ids that no Join can use again, for the hub to replace."""
        pending = {session.token for session in self.sessions.values()}
        return tuple(
            sorted(i for i, token in self.tokens.items() if token.used and i not in pending)
        )

    def to_json(self) -> dict[str, Any]:
        """The durable form: hashes, never a secret."""
        return {
            "tokens": {token_id: asdict(token) for token_id, token in self.tokens.items()},
            "sessions": {hashed: asdict(session) for hashed, session in self.sessions.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TokenBook:
        """Read the durable form."""
        return cls(
            tokens={token_id: Token(**token) for token_id, token in data["tokens"].items()},
            sessions={hashed: Session(**session) for hashed, session in data["sessions"].items()},
        )

    def _check(self, text: str, peer: PeerId, now: float) -> str:
        token_id = text.partition(".")[0]
        token = self.tokens.get(token_id)
        matches = token is not None and hmac.compare_digest(
            token.sha256, sha256(text[:_MAX_TOKEN_CHARS])
        )
        if token is None or not matches or token.peer != peer:
            raise TokenError(sync_pb2.BAD_TOKEN, f"unknown join token for peer {peer}")
        if token.expires_at <= now:
            raise TokenError(sync_pb2.TOKEN_EXPIRED, f"join token {token_id} of {peer} has expired")
        reopens = any(s.token == token_id for s in self.sessions.values() if s.peer == peer)
        if token.used and not reopens:
            raise TokenError(
                sync_pb2.TOKEN_USED, f"join token {token_id} of {peer} was used before"
            )
        return token_id

    def _with_session(self, key: str, **changes: Any) -> TokenBook:
        hashed = sha256(key)
        changed = replace(self.sessions[hashed], **changes)
        return replace(self, sessions={**self.sessions, hashed: changed})


def sha256(text: str) -> str:
    """How tokens and session keys are stored."""
    return hashlib.sha256(text.encode()).hexdigest()
