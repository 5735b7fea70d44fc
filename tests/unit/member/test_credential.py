"""When a member's token is renewed, and which of several is used."""

from datetime import timedelta

import pytest
from builders.tokens import jwt
from spes_operator.member.credential import in_order_of_issue, read_token, renew_in


@pytest.mark.parametrize(
    ("life", "age", "expected"),
    [
        (timedelta(days=7), timedelta(), timedelta(hours=1)),
        (timedelta(days=7), timedelta(minutes=59), timedelta(minutes=1)),
        (timedelta(days=7), timedelta(hours=2), timedelta()),
        (timedelta(minutes=10), timedelta(), timedelta(minutes=5)),
        (timedelta(minutes=10), timedelta(minutes=4), timedelta(minutes=1)),
        (timedelta(hours=1), timedelta(hours=8), timedelta()),
    ],
    ids=["hour", "soon", "due", "shortened by the hub", "shortened, soon", "expired"],
)
def test_token_is_renewed_hourly_and_by_half_of_its_life(life, age, expected):
    assert renew_in(life, age=age) == expected


def test_token_tells_its_life():
    credential = read_token(jwt(iat=1_000, exp=4_600) + "\n")
    assert credential.life == timedelta(hours=1)
    assert not credential.token.endswith("\n")


@pytest.mark.parametrize(
    "token", ["", "opaque", "a.b.c", jwt(iat=1), jwt(iat="x", exp=2), jwt(iat=1e30, exp=2e30)]
)
def test_other_tokens_are_refused_without_repeating_them(token):
    with pytest.raises(ValueError, match="ServiceAccount token") as caught:
        read_token(token)
    assert not token or token not in str(caught.value)


def test_token_is_not_shown():
    token = jwt(iat=1, exp=2)
    assert token not in repr(read_token(token))


def test_newest_token_comes_first():
    old, new = jwt(iat=1, exp=9_000), jwt(iat=5, exp=100)
    assert [one.token for one in in_order_of_issue([old, "opaque", new])] == [new, old]
