"""Whole rounds of toy peers against a real server: the worked example, to its numbers."""

from __future__ import annotations

from contextlib import ExitStack
from time import monotonic

import numpy as np
import pytest
from builders.sync_server import eventually, running_server
from builders.toy_learner import PSI, ToyLearner, phi, toy_manifest
from builders.toy_peer import Gate, seeded_peers, served, toy_settings, version_of
from spes_sync.client import OwnershipChange, StepPosition

# Silence is not what closes a round here: its deadline is.
PATIENT = {
    "reassignment__unreachableAfterSeconds": 200,
    "reassignment__reassignAfterSeconds": 300,
}
A, B, C = "uni-a.0", "uni-b.0", "uni-c.0"


def final_hash(server) -> str:
    return server.journal("committed")[-1]["modelSha256"]


def complete(peers) -> None:
    assert [peer.wait().reason for peer in peers] == ["COMPLETE"] * len(peers)


@pytest.mark.parametrize(
    ("steps", "psi", "phis"), [(1, 0.2, (0.2, 0.4)), (2, 0.38, (0.38, 0.76))], ids=["H=1", "H=2"]
)
def test_two_peers_reach_the_worked_numbers(server, steps, psi, phis):
    server.hub.settings_json = toy_settings(steps=steps, rounds=1)
    with seeded_peers(server, A, B) as peers:
        server.hub.apply({0: A, 1: B})
        complete(peers)
    model = served(server, 1)
    assert model[PSI] == pytest.approx(psi, rel=1e-6)
    assert [model[phi(0)][0], model[phi(1)][0]] == pytest.approx(phis, rel=1e-6)


def alone(*, rounds: int, steps: int, through_base: bool) -> dict[str, np.ndarray]:
    """The plain loop of one peer that owns everything, optionally through x = base + (x - base)."""
    learner = ToyLearner(a=1, b=2)
    learner.own(OwnershipChange(owned=(0, 1), gained=(0, 1), lost=(), moments={}, untrained=True))
    for _ in range(rounds):
        base = {name: np.array(value) for name, value in learner.values.items()}
        for _ in range(steps):
            learner.step(StepPosition(round=1, sequences=(0, 1), global_tokens=0))
        if through_base:
            learner.write((n, base[n] + (v - base[n])) for n, v in dict(learner.values).items())
    return learner.values


def test_one_peer_through_the_server_is_the_plain_loop(server):
    server.hub.settings_json = toy_settings(steps=3, rounds=4, num_peers=1)
    with seeded_peers(server, A) as peers:
        server.hub.apply({0: A, 1: A})
        complete(peers)
    model, exact = served(server, 4), alone(rounds=4, steps=3, through_base=True)
    plain = alone(rounds=4, steps=3, through_base=False)
    for name, value in model.items():
        assert value.tobytes() == exact[name].tobytes(), name
        assert value == pytest.approx(plain[name], rel=1e-6)
        assert value != 0


def run_four_rounds(server, *, last: str) -> str:
    """The hash after four rounds in which `last` always pushes after the other."""
    server.hub.settings_json = toy_settings(rounds=4)
    gate = Gate()
    with seeded_peers(server, A, B) as peers:
        next(peer for peer in peers if peer.name == last).before_step = gate
        server.hub.apply({0: A, 1: B})
        for number in range(1, 5):
            gate.wait_until_reached(number)
            eventually(lambda: len(server.hub.state().pushed) == 1, "the other has pushed")
            gate.open(number)
        complete(peers)
    return final_hash(server)


def test_the_order_of_arrival_changes_no_bit(tmp_path):
    hashes = set()
    for last in (A, B):
        with running_server(tmp_path / last) as server:
            hashes.add(run_four_rounds(server, last=last))
    assert len(hashes) == 1


def test_a_server_restart_in_a_round_changes_no_bit(tmp_path):
    with running_server(tmp_path / "whole") as server:
        undisturbed = run_four_rounds(server, last=B)
    gate, directory = Gate(), tmp_path / "cut"
    with ExitStack() as first_life:
        server = first_life.enter_context(running_server(directory))
        server.hub.settings_json = toy_settings(rounds=4)
        with seeded_peers(server, A, B) as peers:
            peers[1].before_step = gate
            server.hub.apply({0: A, 1: B})
            gate.wait_until_reached()
            eventually(lambda: list(server.hub.state().pushed) == [A], "A has pushed")
            first_life.close()
            with running_server(directory, tls=server.tls, port=server.ports.port) as again:
                gate.open()
                complete(peers)
                assert final_hash(again) == undisturbed
                assert [e["version"] for e in again.journal("committed")] == [1, 2, 3, 4]


def test_a_peer_that_is_out_of_time_brings_what_it_has(server):
    seconds, gate = 2, Gate()
    server.hub.settings_json = toy_settings(
        steps=3, num_peers=3, sync__everySeconds=seconds, training__maxTokens=16 * (3 + 3 + 1)
    )
    everyone = {"manifest": toy_manifest(num_experts=3), "targets": (1.0, 2.0)}
    with seeded_peers(server, A, B, C, **everyone) as peers:
        peers[2].before_step = gate
        server.hub.apply({0: A, 1: B, 2: C})
        gate.wait_until_reached()
        over = monotonic() + seconds
        eventually(lambda: monotonic() > over, "the round's seconds are over")
        gate.open()
        complete(peers)
    (commit,) = server.journal("committed")
    assert {row["peer"]: row["steps"] for row in commit["peers"]} == {A: 3, B: 3, C: 1}


def test_a_silent_peer_is_left_out_at_the_deadline(server, clock):
    server.hub.settings_json = toy_settings(sync__quorum=0.5, **PATIENT)
    gate = Gate()
    with seeded_peers(server, A, B) as peers:
        peers[1].before_step = gate
        server.hub.apply({0: A, 1: B})
        gate.wait_until_reached()
        eventually(lambda: list(server.hub.state().pushed) == [A], "A has pushed")
        clock.skip(61)
        eventually(lambda: version_of(server) == 1, "commit without B")
        gate.open()
        eventually(lambda: version_of(server) >= 3, "B is back")
    first, second = server.journal("committed")[:2]
    assert [row["peer"] for row in first["peers"]] == [A]
    assert [row["peer"] for row in second["peers"]] == [A, B]
    assert second["peers"][1]["steps"] == 2  # carried: not lost, not counted twice


def test_without_any_push_the_version_stays(server, clock):
    server.hub.settings_json = toy_settings(num_peers=1, **PATIENT)
    gate = Gate()
    with seeded_peers(server, A) as peers:
        peers[0].before_step = gate
        server.hub.apply({0: A, 1: A})
        gate.wait_until_reached()
        clock.skip(61)
        eventually(lambda: server.journal("held"), "held")
        assert version_of(server) == 0
        gate.open()
        eventually(lambda: version_of(server) == 1, "the late push closes the round")
