"""Certificates, tokens, sessions: who may do what, and what a stranger gets."""

from __future__ import annotations

import json
import math
import shutil
from datetime import timedelta

import grpc
import pytest
from builders.raw_peer import RawPeer, delta, raw_peers
from builders.sync_server import Hub, eventually, hub_channel, job_settings, running_server
from builders.tls import make_tls
from spes_proto.v1 import control_pb2, control_pb2_grpc, sync_pb2, sync_pb2_grpc
from spes_sync.client.connection import translate
from spes_sync.errors import TokenError
from spes_sync.server.failed_joins import BURST, PERIOD


def failure(call) -> tuple[str, str]:
    """Status code and reason of a call that fails."""
    with pytest.raises(grpc.RpcError) as failed:
        call()
    said = dict(failed.value.trailing_metadata() or ())
    return failed.value.code().name, said.get("spes-reason", "")


def test_control_takes_only_the_hubs_certificate(sync_server, tmp_path):
    port = sync_server.ports.control_port
    roots = sync_server.tls.ca_file.read_bytes()
    stranger = grpc.secure_channel(f"localhost:{port}", grpc.ssl_channel_credentials(roots))
    other_ca = make_tls(tmp_path / "other-ca")
    foreign = grpc.secure_channel(
        f"localhost:{port}",
        grpc.ssl_channel_credentials(roots, other_ca.hub_key, other_ca.hub_certificate),
    )
    for channel in (stranger, foreign):
        stub = control_pb2_grpc.ControlStub(channel)
        assert failure(lambda s=stub: s.Drain(control_pb2.DrainRequest()))[0] == "UNAVAILABLE"
        channel.close()


def test_control_refuses_another_name_of_the_same_ca(tmp_path):
    tls = make_tls(tmp_path / "tls", hub_name="uni-a")
    with running_server(tmp_path / "sync", tls=tls) as server:
        assert failure(server.hub.apply)[0] == "PERMISSION_DENIED"
        with pytest.raises(grpc.RpcError):
            server.hub.state()


def test_plan_is_idempotent_and_never_goes_back(sync_server):
    hub = sync_server.hub
    hub.apply({0: "a.0"})
    assert hub.apply({0: "a.0", 1: "a.0"}).pending_epoch == 2
    assert hub.apply().pending_epoch == 2
    hub.epoch, hub.granted = 1, {0: ("a.0", 1)}
    assert failure(hub.apply) == ("FAILED_PRECONDITION", "OLD_EPOCH")
    hub.epoch, hub.granted = 2, {0: ("b.0", 1)}
    assert failure(hub.apply) == ("FAILED_PRECONDITION", "OLD_EPOCH")


def test_settings_that_are_wrong_are_named(sync_server):
    sync_server.hub.settings_json = job_settings(sync__quorum=2)
    with pytest.raises(grpc.RpcError) as refused:
        sync_server.hub.apply()
    assert "sync.quorum" in refused.value.details()


def test_empty_server_asks_to_come_back(sync_server):
    peer = RawPeer(sync_server, "a.0", "0000000000000000.x")
    assert failure(peer.join)[0] == "UNAVAILABLE"
    assert sync_server.hub.state().version == -1
    peer.close()


# Tokens (oracle Q-13).


@pytest.fixture
def joined(sync_server):
    """A peer that has joined, and the token it used."""
    token = sync_server.hub.invite("a.0")
    sync_server.hub.apply(seed_peer="a.0")
    peer = RawPeer(sync_server, "a.0", token)
    peer.join()
    yield peer, token
    peer.close()


def test_token_of_another_peer_or_none_is_refused(sync_server):
    token = sync_server.hub.invite("a.0")
    sync_server.hub.apply()
    for text in (token, "0000000000000000.guess", ""):
        peer = RawPeer(sync_server, "b.0", text)
        assert failure(peer.join) == ("INVALID_ARGUMENT", "BAD_TOKEN")
        peer.close()
    assert len(sync_server.journal("joinRefused")) == 3


def test_expired_token_is_refused(sync_server):
    token = sync_server.hub.invite("a.0", expires_in=0)
    sync_server.hub.apply()
    peer = RawPeer(sync_server, "a.0", token)
    assert failure(peer.join) == ("INVALID_ARGUMENT", "TOKEN_EXPIRED")
    peer.close()


def test_replayed_token_is_refused_logged_and_reported(sync_server, joined):
    peer, token = joined
    peer.connect()
    peer.hear("seed_wanted")
    thief = RawPeer(sync_server, "a.0", token)
    assert failure(thief.join) == ("INVALID_ARGUMENT", "TOKEN_USED")
    assert sync_server.journal("joinRefused")[0]["reason"] == "TOKEN_USED"
    assert list(sync_server.hub.state().used_token_ids) == [token.partition(".")[0]]
    assert peer.seed().verdict == sync_pb2.VERIFIED
    thief.close()


def test_endless_bad_tokens_are_put_off_and_keep_nobody_out(sync_server):
    token = sync_server.hub.invite("a.0")
    sync_server.hub.apply()
    stranger = RawPeer(sync_server, "a.0", "0000000000000000.x")
    for _ in range(BURST):
        assert failure(stranger.join) == ("INVALID_ARGUMENT", "BAD_TOKEN")
    with pytest.raises(grpc.RpcError) as refused:
        stranger.join()
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    error = translate(refused.value)
    assert isinstance(error, TokenError)
    assert timedelta(0) < error.retry_after <= PERIOD
    assert len(sync_server.journal("joinRefused")) == BURST
    peer = RawPeer(sync_server, "a.0", token)
    assert peer.join().session_key
    for each in (stranger, peer):
        each.close()


def test_restart_with_the_same_identity_takes_part_each_time(sync_server, joined):
    peer, _ = joined
    for _ in range(5):
        peer.connect()
        peer.hear("seed_wanted")
        peer.join()
    used = sync_server.hub.state().used_token_ids
    assert len(used) == 5


def test_new_process_ends_the_session_of_the_old_one(sync_server, joined):
    old, _ = joined
    old.connect()
    old.hear("seed_wanted")
    new = RawPeer(sync_server, "a.0", old.token)
    new.join()
    assert (
        failure(lambda: list(old.stub.Pull(sync_pb2.PullRequest(), metadata=old.metadata)))[0]
        == "UNAUTHENTICATED"
    )
    new.close()


def test_call_without_a_session_is_refused(joined):
    peer, _ = joined
    call = lambda: peer.stub.Push(iter([]))  # noqa: E731
    assert failure(call)[0] == "UNAUTHENTICATED"


def test_other_protocol_is_refused_before_the_token_is_used(sync_server):
    token = sync_server.hub.invite("a.0")
    sync_server.hub.apply()
    peer = RawPeer(sync_server, "a.0", token)
    assert failure(lambda: peer.join(protocol=99)) == ("INVALID_ARGUMENT", "PROTOCOL")
    peer.join()
    peer.close()


def test_no_secret_reaches_disk_or_journal(sync_server, joined):
    peer, token = joined
    peer.connect()
    peer.hear("seed_wanted")
    written = b"".join(
        path.read_bytes() for path in sync_server.directory.rglob("*") if path.is_file()
    )
    for secret in (token, peer.token, peer.reply.session_key):
        assert secret.encode() not in written


def test_peer_with_other_data_is_told_so(sync_server):
    with raw_peers(sync_server, "a.0", "b.0") as (a, b):
        a.say(caught_up=sync_pb2.CaughtUp(version=0, data_fingerprint="x", num_sequences=9))
        eventually(lambda: sync_server.server.engine.run.ledger.fingerprint == "x")
        b.say(caught_up=sync_pb2.CaughtUp(version=0, data_fingerprint="y", num_sequences=9))
        assert failure(lambda: b.hear("stop")) == ("INVALID_ARGUMENT", "DATA_DIFFERS")


# TLS.


def test_renewed_certificate_needs_no_restart(tmp_path):
    tls = make_tls(tmp_path / "tls")
    with running_server(tmp_path / "sync", tls=tls) as server:
        renewed = make_tls(tmp_path / "new")
        for name in ("tls.crt", "tls.key", "client-ca.crt"):
            shutil.copyfile(renewed.directory / name, tls.directory / name)
        with hub_channel(renewed, server.ports.control_port) as channel:
            hub = Hub(control_pb2_grpc.ControlStub(channel))
            assert hub.state().version == -1


def test_wrong_ca_cannot_connect(sync_server, tmp_path):
    other = make_tls(tmp_path / "other")
    credentials = grpc.ssl_channel_credentials(other.ca_file.read_bytes())
    with grpc.secure_channel(sync_server.address, credentials) as channel:
        stub = sync_pb2_grpc.SyncStub(channel)
        assert failure(lambda: stub.Join(sync_pb2.JoinRequest(), timeout=5))[0] == "UNAVAILABLE"


# Sight.


def test_metrics_follow_the_round_and_forget_gone_peers(sync_server):
    with raw_peers(sync_server, "a.0", "b.0") as (a, b):
        sync_server.hub.apply({0: "a.0"})
        a.hear("round_open")
        a.push({**delta([0], 1.0)})
        text = sync_server.scrape()
        assert 'spes_sync_connected{peer="b.0"} 1.0' in text
        assert "spes_sync_version" in text
        b.say(leaving=sync_pb2.Leaving(reason="done"))
        eventually(lambda: sync_server.peer("b.0").left)
        b.disconnect()
        eventually(lambda: 'peer="b.0"' not in sync_server.scrape(), "series gone")


def test_ready_file_names_the_ports(sync_server):
    ready = json.loads((sync_server.directory / "ready.json").read_text())
    assert ready["port"] == sync_server.ports.port
    assert ready["controlPort"] == sync_server.ports.control_port


def test_what_a_peer_says_of_itself_counts_only_if_it_is_a_number(sync_server):
    """Its rate decides how much data it is leased, its evaluation is the job's loss."""
    with raw_peers(sync_server, "a.0") as [peer]:
        peer.connect()
        peer.seed()
        peer.say(heartbeat=sync_pb2.Heartbeat(tokens_per_second=7, steps=1))
        eventually(lambda: sync_server.hub.state().peers[0].tokens_per_second == 7)
        peer.say(heartbeat=sync_pb2.Heartbeat(tokens_per_second=-1, steps=2))
        for number in (math.inf, math.nan):
            peer.say(heartbeat=sync_pb2.Heartbeat(tokens_per_second=number, steps=2))
            peer.say(evaluation=sync_pb2.Evaluation(version=0, loss=number, tokens=1))
        peer.say(heartbeat=sync_pb2.Heartbeat(tokens_per_second=7, loss=math.nan, steps=3))
        peer.say(evaluation=sync_pb2.Evaluation(version=0, loss=4.5, tokens=1))
        eventually(lambda: sync_server.hub.state().held_out_loss == 4.5)
        said = sync_server.hub.state().peers[0]
        assert (said.steps, said.tokens_per_second) == (1, 7)
