"""Who may take part: tokens, session keys, certificates; and what is refused from those who may."""

from __future__ import annotations

import stat
from contextlib import ExitStack
from datetime import timedelta

import grpc
import pytest
from builders.raw_peer import RawPeer
from builders.sync_server import eventually, running_server
from builders.tls import make_tls
from builders.toy_peer import (
    all_caught_up,
    make_peer,
    seeded_peers,
    toy_settings,
    version_of,
)
from spes_sync.client.tokens import TokenFiles
from spes_sync.errors import CertificateError, TokenError

A, B, C = "uni-a.0", "uni-b.0", "uni-c.0"
IMPATIENT = timedelta(seconds=0.5)


@pytest.fixture
def server(server):
    server.hub.settings_json = toy_settings(num_peers=1)
    return server


@pytest.fixture
def joiner(server):
    """A peer that has not joined yet, beside one that trains."""
    with seeded_peers(server, A), ExitStack() as later:
        peer = make_peer(server, B, token_patience=IMPATIENT)
        later.callback(peer.end)
        yield peer


def test_kept_token_is_private_and_opens_the_next_process(server, joiner):
    server.hub.apply()
    joiner.start()
    eventually(lambda: all_caught_up(server, (B,)), "B has caught up")
    kept = joiner.directory / "token"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert kept.read_text() != joiner.token_file.read_text()
    joiner.interrupt()
    joiner.token_file.write_text("")
    joiner.start()
    eventually(lambda: all_caught_up(server, (B,)), "B is back with the kept token")


def test_used_token_is_refused_and_nothing_changes(server, joiner):
    server.hub.apply()
    joiner.start()
    eventually(lambda: all_caught_up(server, (B,)), "B has caught up")
    joiner.interrupt()
    (joiner.directory / "token").unlink()
    before = server.hub.state().version
    joiner.start()
    with pytest.raises(TokenError) as error:
        joiner.wait()
    assert error.value.reason_name == "TOKEN_USED"
    assert server.hub.state().version == before
    assert server.journal("joinRefused")[-1]["reason"] == "TOKEN_USED"


def test_used_token_waits_for_a_new_one_in_its_file(server, joiner):
    joiner.token_patience = timedelta(seconds=60)
    joiner.token_file.write_text("0" * 16 + "." + "A" * 43)
    joiner.start()
    eventually(lambda: server.journal("joinRefused"), "the first token is refused")
    joiner.token_file.write_text(server.hub.invite(B))
    server.hub.apply()
    eventually(lambda: all_caught_up(server, (B,)), "B is in with the new token")


@pytest.mark.parametrize(
    ("peer", "expires_in", "reason"),
    [(B, -1, "TOKEN_EXPIRED"), (C, 3600, "BAD_TOKEN")],
    ids=["expired", "another peer's"],
)
def test_token_that_does_not_fit_is_refused(server, joiner, peer, expires_in, reason):
    joiner.token_file.write_text(server.hub.invite(peer, expires_in=expires_in))
    server.hub.apply()
    joiner.start()
    with pytest.raises(TokenError) as error:
        joiner.wait()
    assert error.value.reason_name == reason


def test_death_between_issue_and_save_costs_no_token(server, joiner, monkeypatch):
    server.hub.apply()

    def die(*_):
        raise OSError("killed before the next token was on disk")

    with monkeypatch.context() as patched:
        patched.setattr(TokenFiles, "keep", die)
        joiner.start()
        with pytest.raises(OSError, match="killed"):
            joiner.wait()
    joiner.start()
    eventually(lambda: all_caught_up(server, (B,)), "the same token opens once more")


def test_session_key_speaks_for_its_own_peer_only(server):
    with seeded_peers(server, A) as (_,), ExitStack() as later:
        other = RawPeer(server, B, server.hub.invite(B))
        later.callback(other.close)
        server.hub.apply({0: A, 1: A})
        eventually(lambda: version_of(server) >= 1, "a round")
        other.join()
        reply = other.push({}, peer=A)
        assert "key of 'uni-a.0' in the session of uni-b.0" in reply.detail
        other.reply.session_key = "guessed"
        with pytest.raises(grpc.RpcError) as error:
            other.pull(-1)
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_wrong_ca_is_explained(joiner, tmp_path):
    joiner.ca_file = make_tls(tmp_path / "other-tls").ca_file
    joiner.start()
    with pytest.raises(CertificateError, match=r"localhost, 127\.0\.0\.1.*use the CA file"):
        joiner.wait()


def test_address_that_the_certificate_does_not_name_is_explained(tmp_path):
    tls = make_tls(tmp_path / "tls", names=("sync.example",))
    with running_server(tmp_path / "sync", tls=tls) as server:
        peer = make_peer(server, A)
        peer.start()
        with pytest.raises(CertificateError, match=r"not for 'localhost'.*sync\.example"):
            peer.wait()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_peer_connects_by_address_and_by_name(server, joiner, host):
    server.hub.apply()
    joiner.address = f"{host}:{server.ports.port}"
    joiner.start()
    eventually(lambda: all_caught_up(server, (B,)), "B has caught up")
