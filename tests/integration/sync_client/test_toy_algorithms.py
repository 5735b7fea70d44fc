"""FedAvg and its kin over the wire: their numbers, and what equals what."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack

import grpc
import numpy as np
import pytest
from builders.sync_server import eventually, running_server
from builders.toy_learner import PSI, Drifter, ToyLearner, toy_manifest
from builders.toy_peer import TARGETS, Gate, seeded_peers, served, toy_settings, version_of
from spes_proto.v1 import control_pb2
from spes_sync.client import StepPosition

A, B = "uni-a.0", "uni-b.0"
EVERYTHING = {"manifest": toy_manifest(replicated=True)}
# DiLoCo's worked example: every number starts at 1, a step takes 0.2 off at A and 0.4 at B.
DRIFTS = {
    **EVERYTHING,
    "kind": Drifter,
    "targets_of": {A: (-0.2, 16), B: (-0.4, 16)},
    "adjust": lambda learner: learner.write((n, np.ones(1)) for n in learner.values),
}
NESTEROV = [0.601, 0.0319, -0.69029]


def settings(name: str, **changes) -> str:
    return toy_settings(**{"algorithm__name": name, "checkpoint__keepLast": 1000, **changes})


def trained(server, peers: Sequence[str], settings_json: str, **changes) -> str:
    """Run a job to its end; the hash of its model."""
    server.hub.settings_json = settings_json
    with seeded_peers(server, *peers, **(changes or EVERYTHING)) as running:
        server.hub.apply({}, peers=peers)
        assert [peer.wait().reason for peer in running] == ["COMPLETE"] * len(peers)
        for peer in running:  # the inner optimizer is the peer's own: nobody touched it
            assert (peer.learner.changes, peer.learner.discarded) == ([], 0)
    return final_hash(server)


def final_hash(server) -> str:
    return server.journal("committed")[-1]["modelSha256"]


def psi_of(server, *versions: int) -> list[float]:
    return [float(served(server, version)[PSI][0]) for version in versions]


def local_rounds(learners: Sequence[ToyLearner], *, rounds: int, steps: int) -> dict:
    """The model after rounds in which all of it is averaged over these learners."""
    model = {name: np.zeros(1, np.float32) for name in EVERYTHING["manifest"].names}
    for number in range(1, rounds + 1):
        for learner in learners:
            learner.write(model.items())
            for _ in range(steps):
                learner.step(StepPosition(round=number, sequences=(0, 1), global_tokens=0))
        model = {name: np.mean([one.values[name] for one in learners], axis=0) for name in model}
    return model


def learner_of(peer: str) -> ToyLearner:
    return ToyLearner(a=TARGETS[peer][0], b=TARGETS[peer][1], **EVERYTHING)


# FedAvg.


def test_every_peer_owning_every_expert_averaged_is_fedavg(server):
    trained(server, (A, B), settings("FedAvg", steps=3, rounds=4))
    expected = local_rounds([learner_of(A), learner_of(B)], rounds=4, steps=3)
    for name, value in served(server, 4).items():
        assert value == pytest.approx(expected[name], rel=1e-6), name
        assert value != 0


@pytest.mark.parametrize(("weights", "change"), [("Tokens", 0.5), ("Uniform", 0.0)])
def test_changes_1_and_minus_1_of_300_and_100_tokens(server, weights, change):
    job = settings(
        "FedAvg",
        steps=1,
        algorithm__weights=weights,
        training__batchTokens=320,
        training__maxTokens=400,
    )
    drifts = {"kind": Drifter, "targets_of": {A: (1.0, 300), B: (-1.0, 100)}}
    trained(server, (A, B), job, **EVERYTHING, **drifts)
    (commit,) = server.journal("committed")
    assert [row["tokens"] for row in commit["peers"]] == [300, 100]
    assert list(served(server, 1).values()) == [change] * 3


def test_one_sgd_step_a_round_is_central_sgd_on_the_union(server):
    """Peer A has three quarters of the batch, so its gradient counts that much."""
    job = settings(
        "FedAvg",
        steps=1,
        algorithm__weights="Tokens",
        training__batchTokens=96,
        training__maxTokens=3 * 128,
    )

    def used(learner) -> None:
        learner.tokens = {1.0: 96, 3.0: 32}[float(learner.a)]

    trained(server, (A, B), job, **EVERYTHING, adjust=used)
    assert len(server.journal("committed")) == 3
    central = ToyLearner(a=0.75 * 1 + 0.25 * 3, b=0.75 * 2 + 0.25 * 4, **EVERYTHING)
    for _ in range(3):
        central.step(StepPosition(round=1, sequences=(0, 1), global_tokens=0))
    for name, value in served(server, 3).items():
        assert value == pytest.approx(central.values[name], rel=1e-6), name


def train_with_b_late(server, clock, algorithm: str) -> None:
    """B misses round 1 and is back in round 2."""
    server.hub.settings_json = settings(
        algorithm,
        steps=1,
        sync__quorum=0.5,
        reassignment__unreachableAfterSeconds=200,
        reassignment__reassignAfterSeconds=300,
    )
    gate = Gate()
    with seeded_peers(server, A, B, **DRIFTS) as peers:
        peers[1].before_step = gate
        server.hub.apply({}, peers=(A, B))
        gate.wait_until_reached()
        eventually(lambda: list(server.hub.state().pushed) == [A], "A has pushed")
        clock.skip(61)
        eventually(lambda: version_of(server) == 1, "a version of A alone")
        gate.open()
        eventually(lambda: version_of(server) >= 2, "B is back")


def test_peer_that_did_not_arrive_is_no_part_of_the_average(server, clock):
    train_with_b_late(server, clock, "FedAvg")
    assert psi_of(server, 1, 2) == pytest.approx([0.8, 0.8 - 0.3])


@pytest.mark.parametrize(("weights", "change"), [("Samples", 0.5), ("Uniform", 0.0)])
def test_changes_1_and_minus_1_of_data_of_3000_and_1000_sequences(server, weights, change):
    job = settings(
        "FedAvg",
        steps=1,
        rounds=1,
        algorithm__weights=weights,
        data__split="Local",
        data__sources=[{"builtin": "python-stdlib"}],
    )

    def local(learner) -> None:
        learner.num_sequences = 3000 if learner.a > 0 else 1000

    drifts = {"kind": Drifter, "targets_of": {A: (1.0, 16), B: (-1.0, 16)}}
    trained(server, (A, B), job, **EVERYTHING, **drifts, adjust=local)
    assert list(served(server, 1).values()) == [change] * 3


# FedNova.


def test_fednova_of_peers_that_make_as_many_steps_is_fedavg_bit_for_bit(tmp_path):
    hashes = set()
    for name in ("FedAvg", "FedNova"):
        with running_server(tmp_path / name) as server:
            hashes.add(trained(server, (A, B), settings(name, steps=3, rounds=4)))
    assert len(hashes) == 1


def test_fednova_divides_a_change_by_the_steps_it_took(server):
    """A leaves after 3 steps of 1, B makes 8 of -0.25: (1 - 0.25) / 2 a step, for 5.5 steps."""
    server.hub.settings_json = settings("FedNova", steps=8, rounds=2)
    drifts = {"kind": Drifter, "targets_of": {A: (1.0, 16), B: (-0.25, 16)}}
    with seeded_peers(server, A, B, **EVERYTHING, **drifts) as (a, _):

        def leave_in_the_third(_: StepPosition) -> None:
            if len(a.learner.positions) == 2:
                a.stop.set()

        a.before_step = leave_in_the_third
        server.hub.apply({}, peers=(A, B))
        assert a.wait().reason == "INTERRUPTED"
        eventually(lambda: version_of(server) >= 1, "a version of both")
        rows = server.journal("committed")[0]["peers"]
        metrics = server.scrape()
        assert {row["peer"]: row["steps"] for row in rows} == {A: 3, B: 8}
        assert psi_of(server, 1) == pytest.approx([5.5 * (1 - 0.25) / 2])
    total = sum(row["tokens"] for row in rows)
    for row in rows:
        assert row["contribution"] == row["contributionSoFar"] == row["tokens"] / total
        assert f'spes_sync_contribution{{peer="{row["peer"]}"}}' in metrics


# FedProx.


class Held(Drifter):
    """A drifter whose every step is pulled back by a tenth of the way from its anchor."""

    def step(self, position: StepPosition):
        for name, value in self.values.items():
            value -= np.float32(0.1) * (value - self.anchors[-1][name])
        return super().step(position)


def test_peers_are_pulled_towards_the_version_that_their_round_began_with(server):
    """Three steps of 1 come to 1, 1.9, 2.71: a_j = 0.9 a_(j-1) + 1, from each version anew."""
    job = settings("FedAvg", steps=3, rounds=2, training__optimizer__proximal=1.0)
    drifts = {"kind": Held, "targets_of": {A: (1.0, 16), B: (1.0, 16)}}
    trained(server, (A, B), job, **EVERYTHING, **drifts)
    assert psi_of(server, 1, 2) == pytest.approx([2.71, 5.42])


def test_a_peer_that_carries_progress_is_pulled_towards_what_is_served(server, clock):
    server.hub.settings_json = settings(
        "FedAvg",
        steps=2,
        sync__quorum=0.5,
        training__optimizer__proximal=1.0,
        reassignment__unreachableAfterSeconds=200,
        reassignment__reassignAfterSeconds=300,
    )
    reached, go_on = threading.Event(), threading.Event()

    def wait_in_the_second(position: StepPosition) -> None:
        if position.round == 1 and len(peers[1].learner.positions) == 1:
            reached.set()
            assert go_on.wait(60)

    with seeded_peers(server, A, B, **DRIFTS) as peers:
        peers[1].before_step = wait_in_the_second
        server.hub.apply({}, peers=(A, B))
        assert reached.wait(60)
        eventually(lambda: list(server.hub.state().pushed) == [A], "A has pushed")
        clock.skip(61)
        eventually(lambda: version_of(server) == 1, "a version of A alone")
        go_on.set()

        def anchors() -> list[float]:
            return list(dict.fromkeys(float(a[PSI][0]) for a in peers[1].learner.anchors))

        eventually(lambda: len(anchors()) >= 3, "B is back")
        assert psi_of(server, 0, 1, 2) == pytest.approx(anchors()[:3])


# DiLoCo.


def test_three_rounds_of_diloco_reach_the_worked_numbers(server):
    trained(server, (A, B), settings("DiLoCo", steps=1, rounds=3), **DRIFTS)
    for name in EVERYTHING["manifest"].names:
        values = [float(served(server, version)[name][0]) for version in (1, 2, 3)]
        assert values == pytest.approx(NESTEROV, abs=1e-6), name


def test_diloco_with_rate_1_and_no_momentum_is_fedavg_bit_for_bit(tmp_path):
    outer = {"learningRate": 1.0, "momentum": 0.0}
    hashes = set()
    for name, more in (("FedAvg", {}), ("DiLoCo", {"algorithm__outer": outer})):
        with running_server(tmp_path / name) as server:
            hashes.add(trained(server, (A, B), settings(name, steps=3, rounds=4, **more)))
    assert len(hashes) == 1


def test_velocity_survives_a_restart_of_the_server(tmp_path):
    gate, directory = Gate(), tmp_path / "sync"
    with ExitStack() as first_life:
        server = first_life.enter_context(running_server(directory))
        job = settings("DiLoCo", steps=1, rounds=3)
        server.hub.settings_json = job
        with seeded_peers(server, A, B, before_step=gate, **DRIFTS) as peers:
            server.hub.apply({}, peers=(A, B))
            gate.open(1)
            gate.wait_until_reached(2)
            first_life.close()
            with running_server(directory, tls=server.tls, port=server.ports.port) as again:
                gate.open()
                assert [peer.wait().reason for peer in peers] == ["COMPLETE"] * 2
                assert psi_of(again, 1, 2, 3) == pytest.approx(NESTEROV, abs=1e-6)


def test_outer_gradient_is_of_those_that_arrived(server, clock):
    """B misses round 1: g = 0.2 alone. Its carried change counts in round 2: g = 0.3."""
    train_with_b_late(server, clock, "DiLoCo")
    first = 1 - 0.7 * 1.9 * 0.2
    velocity = 0.9 * 0.2 + 0.3
    assert psi_of(server, 1, 2) == pytest.approx([first, first - 0.7 * (0.3 + 0.9 * velocity)])


def test_step_that_would_not_be_finite_is_held_and_the_last_version_stays(server, clock, caplog):
    """The FedOpt fault: no NaN is served; the problem is named and tried again."""
    server.hub.settings_json = settings("DiLoCo", steps=1, num_peers=1)
    huge = {**DRIFTS, "targets_of": {A: (3e38, 16)}}
    with seeded_peers(server, A, **huge) as (peer,):
        server.hub.apply({}, peers=(A,))
        eventually(lambda: server.hub.state().phase == control_pb2.HELD, "the round is held")
        state = server.hub.state()
        assert state.version == 0
        assert "would not be finite" in state.problem
        clock.skip(11)
        eventually(lambda: caplog.text.count("commit failed round=1") > 1, "it is tried again")
        assert server.hub.state().problem == state.problem
        assert psi_of(server, 0) == [1.0]
        assert peer.error is None


# Centralised.


@pytest.mark.parametrize("name", ["Centralised", "FedAvg", "SPES"])
def test_one_peer_is_the_plain_loop_whatever_the_algorithm(server, name):
    alone = {"num_peers": 1, "members__max": 1}
    server.hub.settings_json = settings(name, steps=3, rounds=4, **alone)
    manifest = toy_manifest(replicated=name != "SPES")
    with seeded_peers(server, A, manifest=manifest) as (peer,):
        server.hub.apply({0: A, 1: A} if name == "SPES" else {}, peers=(A,))
        assert peer.wait().reason == "COMPLETE"
    learner, model = learner_of(A), {}
    for _ in range(4):
        base = {name: np.array(value) for name, value in learner.values.items()}
        for _ in range(3):
            learner.step(StepPosition(round=1, sequences=(0, 1), global_tokens=0))
        model = {name: base[name] + (v - base[name]) for name, v in learner.values.items()}
        learner.write(list(model.items()))
    for tensor, value in served(server, 4).items():
        assert value.tobytes() == model[tensor].tobytes(), tensor


def test_plan_with_owners_is_refused_where_all_train_everything(server):
    server.hub.settings_json = settings("FedAvg")
    with (
        seeded_peers(server, A, **EVERYTHING),
        pytest.raises(grpc.RpcError, match=r"plan\.replicated has no owners"),
    ):
        server.hub.apply({0: A})
