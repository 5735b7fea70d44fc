"""What peers and their server agree on while they train: plan, data, identity, time."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest
from builders.sync_server import eventually, running_server
from builders.toy_peer import (
    Gate,
    make_peer,
    seeded_peers,
    toy_settings,
    version_of,
)
from spes_sync.errors import ProtocolError, VolumeError

A, B, C = "uni-a.0", "uni-b.0", "uni-c.0"


def test_experts_move_when_a_round_opens(server):
    server.hub.settings_json = toy_settings()
    gate = Gate()
    with seeded_peers(server, A, B, before_step=gate) as (first, second):
        server.hub.apply({0: A, 1: B})
        gate.wait_until_reached(1)
        server.hub.apply({0: B, 1: A})
        gate.open(1)
        gate.wait_until_reached(2)
        gate.open()
        eventually(lambda: version_of(server) >= 3, "rounds after the move")
        assert [change.owned for change in first.learner.changes] == [(0,), (1,)]
        assert [change.untrained for change in second.learner.changes] == [True, False]
    for event in server.journal("push"):
        assert event["verdict"] == "VERIFIED", event


def test_training_goes_on_through_an_outage_up_to_h_steps(tmp_path):
    directory, gate = tmp_path / "sync", Gate()
    with ExitStack() as first_life:
        server = first_life.enter_context(running_server(directory))
        server.hub.settings_json = toy_settings(steps=5, num_peers=1)
        with seeded_peers(server, A) as (peer,):
            peer.before_step = gate
            server.hub.apply({0: A, 1: A})
            gate.wait_until_reached(1)
            first_life.close()
            gate.open(1)
            eventually(lambda: len(peer.learner.positions) == 5, "H steps without a server")
            with running_server(directory, tls=server.tls, port=server.ports.port) as again:
                eventually(lambda: version_of(again) == 1, "the round is closed")
                assert len(peer.learner.positions) == 5
                assert peer.error is None


def test_peer_with_other_data_is_turned_away(server):
    server.hub.settings_json = toy_settings(num_peers=1)

    def other_data(learner) -> None:
        learner.fingerprint = "other"

    with seeded_peers(server, A), ExitStack() as later:
        peer = make_peer(server, B, adjust=other_data)
        later.callback(peer.end)
        server.hub.apply()
        peer.start()
        with pytest.raises(ProtocolError, match="mount the same dataset"):
            peer.wait()


def test_two_processes_never_share_a_directory(server):
    server.hub.settings_json = toy_settings(num_peers=1)
    with seeded_peers(server, A) as (peer,):
        twin = make_peer(server, A)
        twin.start()
        with pytest.raises(VolumeError, match="in use by process"):
            twin.wait()
        assert peer.error is None


def test_directory_of_another_job_is_refused(server, tmp_path):
    server.hub.settings_json = toy_settings(num_peers=1)
    (tmp_path / A).mkdir()
    (tmp_path / A / "job").write_text("another-job")
    peer = make_peer(server, A)
    server.hub.apply(seed_peer=A)
    peer.start()
    with pytest.raises(VolumeError, match="belongs to another job"):
        peer.wait()


@pytest.mark.parametrize("skew", [3600.0, -3600.0], ids=["an hour ahead", "an hour behind"])
def test_clocks_of_peer_and_server_may_differ(tmp_path, skew):
    with running_server(tmp_path / "sync", unix=lambda: time.time() + skew) as server:
        server.hub.settings_json = toy_settings(num_peers=1)
        with seeded_peers(server, A) as (peer,):
            server.hub.apply({0: A, 1: A})
            eventually(lambda: version_of(server) >= 1, "a round")
            assert peer.error is None


def test_lowest_peer_evaluates_what_is_served(server):
    server.hub.settings_json = toy_settings(data__heldOutFraction=0.05)
    with seeded_peers(server, A, B) as peers:
        server.hub.apply({0: A, 1: B})
        eventually(lambda: len(server.journal("evaluated")) >= 3, "evaluations")
        assert all(peer.live.is_set() for peer in peers)
    evaluated = server.journal("evaluated")
    assert {event["peer"] for event in evaluated} == {A}
    assert [event["version"] for event in evaluated[:3]] == [0, 1, 2]
    assert evaluated[0]["loss"] == pytest.approx(2.0**2 + 3.0**2)  # of the weights at 0
