"""Peers that leave, crash or are told to end."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from builders.sync_server import eventually, running_server
from builders.toy_learner import phi, toy_manifest
from builders.toy_peer import (
    Gate,
    all_caught_up,
    make_peer,
    peer_state,
    seeded_peers,
    toy_settings,
    version_of,
)
from spes_sync.errors import DivergedError, StaleSessionError

A, B, C = "uni-a.0", "uni-b.0", "uni-c.0"


def test_crashed_peer_leaves_the_round_which_closes_without_it(server, clock):
    server.hub.settings_json = toy_settings(num_peers=1)
    gate = Gate()
    with seeded_peers(server, A, B) as (alive, dead):
        dead.before_step = gate
        server.hub.apply({0: A, 1: B})
        gate.wait_until_reached(1)
        gate.open()
        dead.crash()
        eventually(lambda: list(server.hub.state().pushed) == [A], "A has pushed")
        assert set(server.hub.state().expected) == {A, B}
        clock.skip(21)  # unreachableAfterSeconds is 20; the round's deadline is 60
        eventually(lambda: committed_peers_or_none(server) == [A], "the round closes at once")
        eventually(lambda: list(server.hub.state().expected) == [A], "B is no longer counted")
        assert alive.error is None


def committed_peers_or_none(server) -> list[str] | None:
    commits = server.journal("committed")
    return [row["peer"] for row in commits[0]["peers"]] if commits else None


def test_sigterm_hands_over_work_and_moments(server):
    server.hub.settings_json = toy_settings(steps=10, num_peers=1)
    with seeded_peers(server, A, B) as (stays, leaves):
        gate, stay_gate = Gate(), Gate()
        leaves.before_step, stays.before_step = gate, stay_gate
        server.hub.apply({0: A, 1: B})
        gate.wait_until_reached(1)
        leaves.stop.set()  # seen after the step that is under way
        gate.open()
        assert leaves.wait().interrupted
        stay_gate.open(1)
        eventually(lambda: version_of(server) == 1, "the round closes with what there is")
        (commit,) = server.journal("committed")
        assert {row["peer"]: row["steps"] for row in commit["peers"]} == {A: 10, B: 1}
        parts = [(e["peer"], e["part"], e["verdict"]) for e in server.journal("push")]
        assert parts[:4] == [
            (A, "ALL", "VERIFIED"),
            (B, "EXPERTS", "VERIFIED"),
            (B, "SHARED", "VERIFIED"),
            (B, "MOMENTS", "VERIFIED"),
        ]
        server.hub.apply({0: A, 1: A})
        stay_gate.open()
        eventually(lambda: len(stays.learner.changes) == 2, "A takes over expert 1")
        change = stays.learner.changes[-1]
        assert (change.gained, change.lost) == ((1,), ())
        assert set(change.moments[1]) == set(toy_manifest().moments_of(1).names)
        assert change.moments[1][f"exp_avg.{phi(1)}"] == 2


def test_drained_peer_says_goodbye_and_ends_with_stop(server):
    server.hub.settings_json = toy_settings(num_peers=1)
    with seeded_peers(server, A, B) as (_, drained):
        server.hub.apply({0: A, 1: B})
        eventually(lambda: version_of(server) >= 1, "a round")
        server.hub.drain(B, grace=5)
        eventually(lambda: peer_state(server, B).left == "drained", "goodbye")
        server.hub.apply({0: A, 1: A})
        assert not drained.wait().interrupted


def test_loss_that_is_not_finite_stops_the_peer_and_says_where(server):
    server.hub.settings_json = toy_settings(num_peers=1)

    def make_nan(learner) -> None:
        learner.loss_override = float("nan")

    with seeded_peers(server, A, adjust=make_nan) as (peer,):
        server.hub.apply({0: A, 1: A})
        with pytest.raises(DivergedError, match="loss is nan in round 1, step 1"):
            peer.wait()
        eventually(lambda: "loss is nan" in peer_state(server, A).left, "the hub is told")


def test_older_process_ends_when_a_newer_one_joins(server, tmp_path):
    server.hub.settings_json = toy_settings(num_peers=1)
    with seeded_peers(server, A) as (old,), ExitStack() as later:
        new = make_peer(server, A)
        new.directory = tmp_path / "elsewhere"
        later.callback(new.end)
        server.hub.apply()
        new.start()
        with pytest.raises(StaleSessionError):
            old.wait()
        eventually(lambda: all_caught_up(server, (A,)), "the new process is live")


def test_peer_ends_at_once_when_told_to_during_an_outage(tmp_path):
    with ExitStack() as life:
        server = life.enter_context(running_server(tmp_path / "sync"))
        server.hub.settings_json = toy_settings(num_peers=1)
        with seeded_peers(server, A) as (peer,):
            server.hub.apply({0: A, 1: A})
            eventually(lambda: version_of(server) >= 1, "a round")
            life.close()
            assert peer.interrupt().interrupted


def test_peer_that_never_finds_its_server_ends_when_told_to(server):
    peer = make_peer(server, A)
    peer.address = "localhost:1"
    peer.start()
    assert peer.interrupt().interrupted
