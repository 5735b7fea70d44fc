import base64
import hashlib
from datetime import UTC, datetime, timedelta

from spes_operator.hub.join_tokens import mint, token_hash
from spes_operator.names import ObjectKey

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = ObjectKey("spes-member-uni-a", "moe-tiny-0-join")


def test_token_is_told_by_its_hash_alone():
    secret = mint(KEY, peer="uni-a.0", job_uid="uid-1", now=NOW)
    text = base64.b64decode(secret["data"]["token"]).decode()
    told = token_hash(secret)
    assert told.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert text.partition(".")[0] == told.id
    assert len(told.id) == 16
    assert text not in str(secret["metadata"])
    assert (told.peer, told.expires_at) == ("uni-a.0", NOW + timedelta(hours=24))


def test_no_two_tokens_are_alike():
    minted = [mint(KEY, peer="uni-a.0", job_uid="uid-1", now=NOW)["data"]["token"] for _ in "ab"]
    assert minted[0] != minted[1]


def test_other_secrets_are_no_tokens():
    assert token_hash({"metadata": {"name": "x", "annotations": {}}}) is None
