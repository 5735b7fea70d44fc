"""The token with which a member reaches its hub: what it says of itself, and when it is renewed.

Pure. Lives are durations between two times of the hub's clock, ages between two of this machine's:
no time of one is ever compared with one of the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from spes_operator.backoff import Backoff
from spes_operator.k8s.account_token import claims_of

# What is asked for; hubs may give less. A member may be off for so long and come back by itself.
WANTED_LIFE = timedelta(days=7)
_RENEW_EVERY = timedelta(hours=1)
# After a renewal that failed: soon enough for a person who applied a new invitation and waits.
RENEWALS = Backoff(first=timedelta(seconds=15), longest=timedelta(minutes=2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A bearer token of the hub's API."""

    token: str = field(repr=False)
    issued_at: datetime
    expires_at: datetime
    """Both by the hub's clock."""

    @property
    def life(self) -> timedelta:
        """How long it was valid when it was issued."""
        return self.expires_at - self.issued_at


def read_token(token: str) -> Credential:
    """The token with the times in it; its signature is for the hub to judge.

    Raises:
        ValueError: It is no ServiceAccount token with an end. The message does not repeat it.
    """
    try:
        claims = claims_of(token)
        return Credential(
            token=token.strip(),
            issued_at=datetime.fromtimestamp(claims["iat"], UTC),
            expires_at=datetime.fromtimestamp(claims["exp"], UTC),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ValueError(
            "not a ServiceAccount token that ends (expected a JWT with iat and exp)"
        ) from None


def renew_in(life: timedelta, *, age: timedelta) -> timedelta:
    """How long a token of this life and age serves before it is renewed; 0: now.

    Hourly, and at half of a life that the hub has shortened: two renewals may fail then.
    """
    return max(timedelta(), min(_RENEW_EVERY, life / 2) - age)


def in_order_of_issue(tokens: list[str]) -> list[Credential]:
    """The readable ones of some tokens, newest first: a renewed invitation beats an old life."""
    found = []
    for token in tokens:
        try:
            found.append(read_token(token))
        except ValueError:
            continue
    return sorted(found, key=lambda one: one.issued_at, reverse=True)
