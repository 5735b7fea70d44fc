"""Peers that come, go, crash and come back while others train."""

from __future__ import annotations

import time
from contextlib import ExitStack

import numpy as np
import pytest
from builders.relay import relay_to
from builders.sync_server import eventually, running_server
from builders.toy_learner import PSI, ToyLearner, phi, toy_manifest
from builders.toy_peer import (
    TARGETS,
    CrashError,
    Gate,
    all_caught_up,
    make_peer,
    peer_state,
    seeded_peers,
    served,
    toy_settings,
    version_of,
)
from spes_sync.client import StepPosition
from spes_sync.errors import DivergedError, ProtocolError, StaleSessionError, VolumeError

A, B, C = "uni-a.0", "uni-b.0", "uni-c.0"


def committed_peers(server, version: int) -> list[str]:
    (commit,) = (c for c in server.journal("committed") if c["version"] == version)
    return [row["peer"] for row in commit["peers"]]


def test_joiner_gets_the_last_version_while_a_round_is_open(server):
    server.hub.settings_json = toy_settings(num_peers=1)
    gate = Gate()
    with seeded_peers(server, A) as peers, ExitStack() as later:
        peers[0].before_step = gate
        server.hub.apply({0: A, 1: A})
        gate.open(1)
        gate.wait_until_reached(2)
        joiner = make_peer(server, C, targets=(0.0, 0.0))
        later.callback(joiner.end)
        server.hub.apply()
        joiner.start()
        asked = time.monotonic()
        eventually(lambda: all_caught_up(server, (C,)), "the joiner has caught up")
        assert time.monotonic() - asked < 2
        assert server.hub.state().round == 2  # it did not wait for the round
        assert joiner.learner.values[PSI] == served(server, 1)[PSI]


def test_joiner_holds_the_same_bits_after_its_first_round(server):
    server.hub.settings_json = toy_settings(num_peers=1)
    gate = Gate()
    with seeded_peers(server, A) as (first,), ExitStack() as later:
        first.before_step = gate
        server.hub.apply({0: A, 1: A})
        gate.open(2)
        gate.wait_until_reached(3)
        joiner = make_peer(server, B, before_step=gate)
        later.callback(joiner.end)
        server.hub.apply()
        joiner.start()
        eventually(lambda: all_caught_up(server, (B,)), "the joiner has caught up")
        server.hub.apply({0: A, 1: B})
        gate.open(4)
        gate.wait_until_reached(5)
        eventually(lambda: first.volume.checkpoints[-1][0].version == 4, "A holds version 4")
        eventually(lambda: joiner.volume.checkpoints[-1][0].version == 4, "B holds version 4")
        assert committed_peers(server, 4) == [A, B]
        model = served(server, 4)
        for peer in (first, joiner):
            held = peer.volume.checkpoints[-1][1]
            assert {n: v.tobytes() for n, v in held.items()} == {
                n: v.tobytes() for n, v in model.items()
            }


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


class CrashAfter:
    """Kills the peer when it is about to make one more step than this."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self, _: StepPosition) -> None:
        if self.left == 0:
            raise CrashError
        self.left -= 1


def test_relaunched_peer_pushes_against_the_current_model(server):
    """Killed in round 1 and relaunched, it counts from round 2 on, as if it had skipped round 1."""
    server.hub.settings_json = toy_settings(num_peers=1)
    gate = Gate()
    with seeded_peers(server, A, B) as (first, second):
        first.before_step, second.before_step = gate, CrashAfter(1)
        server.hub.apply({0: A, 1: B})
        eventually(lambda: isinstance(second.error, CrashError), "B is killed in round 1")
        second.before_step = gate
        second.start()
        eventually(lambda: all_caught_up(server, (B,)), "B is back")
        gate.open(2)
        eventually(lambda: version_of(server) == 2, "round 2")
        assert [committed_peers(server, v) for v in (1, 2)] == [[A], [A, B]]
    model = rounds_by_hand([[A], [A, B]], steps=2)
    for name, value in served(server, 2).items():
        assert value == pytest.approx(model[name], rel=1e-6), name


def rounds_by_hand(rounds: list[list[str]], *, steps: int) -> dict[str, np.ndarray]:
    """The served model after rounds in which these peers took part; A owns phi 0, B phi 1."""
    model = ToyLearner(a=0, b=0).values
    for number, names in enumerate(rounds, start=1):
        learners = {}
        for name in names:
            learner = learners[name] = ToyLearner(a=TARGETS[name][0], b=TARGETS[name][1])
            learner.owned = (0,) if name == A else (1,)
            learner.write(model.items())
            for _ in range(steps):
                learner.step(StepPosition(round=number, sequences=(0, 1), global_tokens=0))
        model = {name: np.array(value) for name, value in model.items()}
        model[PSI] = np.mean([learner.values[PSI] for learner in learners.values()], axis=0)
        for name, learner in learners.items():
            own = phi(0 if name == A else 1)
            model[own] = learner.values[own]
    return model


def test_same_identity_takes_part_after_each_of_five_restarts(server):
    server.hub.settings_json = toy_settings(num_peers=1)
    with seeded_peers(server, A) as (peer,):
        server.hub.apply({0: A, 1: A})
        for _ in range(5):
            before = version_of(server)
            eventually(lambda seen=before: version_of(server) > seen, "a round with it")
            assert peer.interrupt().interrupted
            peer.start()
        before = version_of(server)
        eventually(lambda: version_of(server) > before, "a round after the last restart")
    assert {row["peer"] for c in server.journal("committed") for row in c["peers"]} == {A}


def test_restarted_peer_goes_on_from_its_checkpoint(server):
    server.hub.settings_json = toy_settings(num_peers=1)
    with seeded_peers(server, A) as (peer,):
        server.hub.apply({0: A, 1: A})
        eventually(lambda: version_of(server) >= 3, "three rounds")
        peer.interrupt()
        saved = peer.volume.checkpoints[-1][0]
        peer.start()
        eventually(lambda: version_of(server) >= saved.version + 3, "rounds after the restart")
        assert not any(change.gained for change in peer.learner.changes)  # its moments stay
        assert peer.interrupt().steps > saved.steps


def test_base_that_is_not_the_servers_is_replaced_in_full(server):
    server.hub.settings_json = toy_settings(num_peers=1)
    gate = Gate()
    with seeded_peers(server, A) as (peer,):
        server.hub.apply({0: A, 1: A})
        eventually(lambda: version_of(server) >= 2, "two rounds")
        peer.interrupt()
        for _, values in peer.volume.checkpoints:
            values[phi(1)] += 1  # a damaged disk, or another run's model
        peer.before_step = gate
        peer.start()
        gate.wait_until_reached(version_of(server) + 1)
        model = served(server, version_of(server))
        gate.open()
        before = version_of(server)
        eventually(lambda: version_of(server) > before, "a round")
        assert np.isfinite(model[phi(1)]).all()


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


def test_cut_streams_are_taken_up_again(server):
    server.hub.settings_json = toy_settings(num_peers=1)
    size = 600_000
    manifest = toy_manifest(num_experts=2, size=size)
    with relay_to(server.ports.port) as relay, seeded_peers(server, A, manifest=manifest) as (a,):
        a.before_step = gate = Gate()
        server.hub.apply({0: A, 1: A})
        gate.open(1)
        gate.wait_until_reached(2)
        peer = make_peer(server, B, manifest=manifest)
        peer.address = relay.address
        server.hub.apply()
        total = 3 * 4 * size
        relay.cut_down_at = int(total * 0.99)
        peer.start()
        try:
            eventually(lambda: all_caught_up(server, (B,)), "the pull is complete")
            assert relay.cuts == 1
            # Begun again it would be 1.99; what lay in the relay's sockets is sent twice.
            assert relay.bytes_down < 1.9 * total
            relay.bytes_up, relay.cut_up_at = 0, 4 * size
            server.hub.apply({0: A, 1: B})
            gate.open(3)
            eventually(lambda: version_of(server) == 3, "the push arrives")
            assert committed_peers(server, 3) == [A, B]
            assert relay.cuts == 2
        finally:
            peer.end()


def test_loss_that_is_not_finite_stops_the_peer_and_says_where(server):
    server.hub.settings_json = toy_settings(num_peers=1)

    def make_nan(learner) -> None:
        learner.loss_override = float("nan")

    with seeded_peers(server, A, adjust=make_nan) as (peer,):
        server.hub.apply({0: A, 1: A})
        with pytest.raises(DivergedError, match="loss is nan in round 1, step 1"):
            peer.wait()
        eventually(lambda: "loss is nan" in peer_state(server, A).left, "the hub is told")


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
