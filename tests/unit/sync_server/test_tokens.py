"""One-time tokens: oracle Q-13, and the crash between issue and save."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from builders.sync_rounds import A, B
from spes_proto.v1 import sync_pb2
from spes_sync.errors import TokenError
from spes_sync.tokens import NEXT_TOKEN_SECONDS, Fresh, Token, TokenBook, sha256

HUBS = "0000000000000001.hub-secret"


def fresh(number: int) -> Fresh:
    return Fresh(session_key=f"key-{number}", next_token=f"000000000000001{number}.secret-{number}")


def book() -> TokenBook:
    return TokenBook().add("0000000000000001", Token(peer=A, sha256=sha256(HUBS), expires_at=100.0))


def redeem(before: TokenBook, text: str, number: int, *, peer=A, now=0.0) -> TokenBook:
    return before.redeem(text, peer=peer, now=now, fresh=fresh(number))


@pytest.mark.parametrize(
    ("text", "peer", "now", "reason"),
    [
        (HUBS, B, 0.0, sync_pb2.BAD_TOKEN),
        ("0000000000000001.guess", A, 0.0, sync_pb2.BAD_TOKEN),
        ("nothing", A, 0.0, sync_pb2.BAD_TOKEN),
        (HUBS, A, 100.0, sync_pb2.TOKEN_EXPIRED),
    ],
    ids=["another peer's", "wrong secret", "no token", "expired"],
)
def test_wrong_token_is_refused(text, peer, now, reason):
    with pytest.raises(TokenError) as refused:
        redeem(book(), text, 1, peer=peer, now=now)
    assert refused.value.reason == reason


def test_second_use_is_refused_once_the_session_was_used():
    used = redeem(book(), HUBS, 1).touched("key-1")
    with pytest.raises(TokenError) as refused:
        redeem(used, HUBS, 2)
    assert refused.value.reason == sync_pb2.TOKEN_USED
    assert used.session("key-1") is not None


def test_token_is_accepted_again_until_its_session_is_used():
    again = redeem(redeem(book(), HUBS, 1), HUBS, 2)
    assert again.session("key-1") is None
    assert again.session("key-2") is not None
    with pytest.raises(TokenError):
        redeem(again, fresh(1).next_token, 3)


def test_next_token_works_once():
    joined = redeem(redeem(book(), HUBS, 1).touched("key-1"), fresh(1).next_token, 2)
    assert joined.touched("key-2").used_ids == ("0000000000000001", "0000000000000011")
    with pytest.raises(TokenError):
        redeem(joined.touched("key-2"), fresh(1).next_token, 3)


def test_next_token_works_before_its_session_is_used():
    """The client saved it and died before its first call."""
    joined = redeem(redeem(book(), HUBS, 1), fresh(1).next_token, 2)
    assert joined.session("key-1") is None
    assert joined.session("key-2") is not None
    with pytest.raises(TokenError):
        redeem(joined, HUBS, 3)


def test_a_peer_has_one_session():
    joined = redeem(redeem(book(), HUBS, 1).touched("key-1"), fresh(1).next_token, 2)
    assert joined.session("key-1") is None


def test_used_id_is_reported_only_when_nothing_can_open_it():
    joined = redeem(book(), HUBS, 1)
    assert joined.used_ids == ()
    assert joined.touched("key-1").used_ids == ("0000000000000001",)


def test_known_id_of_the_hub_is_left_as_it_is():
    used = redeem(book(), HUBS, 1).touched("key-1")
    again = used.add("0000000000000001", Token(peer=A, sha256=sha256(HUBS), expires_at=999.0))
    assert again == used


def test_expired_tokens_are_forgotten_at_the_next_join():
    joined = redeem(book(), HUBS, 1).touched("key-1")
    later = redeem(joined, fresh(1).next_token, 2, now=NEXT_TOKEN_SECONDS - 1.0)
    assert "0000000000000001" not in later.tokens


def test_book_survives_the_disk_and_holds_no_secret():
    joined = redeem(book(), HUBS, 1).caught_up("key-1")
    text = json.dumps(joined.to_json())
    assert TokenBook.from_json(json.loads(text)) == joined
    assert not any(secret in text for secret in ("hub-secret", "key-1", "secret-1"))


def test_job_that_begins_anew_knows_nobody_as_caught_up():
    joined = redeem(book(), HUBS, 1).caught_up("key-1")
    session = joined.session("key-1")
    assert joined.starting_anew().session("key-1") == replace(session, caught_up=False)
