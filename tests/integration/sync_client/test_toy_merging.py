"""Merging over the wire: what owners hold is replaced by what the server merged, on every peer."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest
from builders.sync_server import eventually, running_server
from builders.toy_learner import ToyLearner, phi, toy_manifest
from builders.toy_peer import Gate, seeded_peers, served, toy_settings, version_of
from spes_sync.client import OwnershipChange, StepPosition
from spes_sync.merge import MergeStep, alpha_at, merge_experts

A, B = "uni-a.0", "uni-b.0"
ALL = (0, 1, 2, 3)
# Of every second round, from 0.2 down to 0 in round 12.
MERGE = {"alpha": 0.2, "donors": 2, "everyRounds": 2, "warmupRounds": 12}


def scattered(learner: ToyLearner) -> None:
    """Give every expert a direction of its own; all peers alike."""
    random = np.random.default_rng(7)
    for expert in ALL:
        learner.values[phi(expert)][...] = random.normal(size=4)


FOUR = {"manifest": toy_manifest(num_experts=4, size=4), "adjust": scattered}


def merging(**changes) -> str:
    return toy_settings(**{"algorithm__merge": MERGE, **changes})


def alone(*, rounds: int, steps: int, through_base: bool) -> dict[str, np.ndarray]:
    """The plain loop that merges at the same steps, optionally through x = base + (x - base)."""
    learner = ToyLearner(a=1, b=2, manifest=FOUR["manifest"])
    scattered(learner)
    learner.own(OwnershipChange(owned=ALL, gained=ALL, lost=(), moments={}, untrained=True))
    for number in range(1, rounds + 1):
        base = {name: np.array(value) for name, value in learner.values.items()}
        for _ in range(steps):
            learner.step(StepPosition(round=1, sequences=(0, 1), global_tokens=0))
        live = learner.values
        if through_base:
            live = {name: base[name] + (value - base[name]) for name, value in live.items()}
        alpha = alpha_at(number, alpha=MERGE["alpha"], warmup=MERGE["warmupRounds"])
        if number % MERGE["everyRounds"] == 0 and alpha > 0:
            step = MergeStep(alpha=alpha, num_donors=MERGE["donors"])
            merged = {n: np.array(v) for n, v in merge_experts(live, live.__getitem__, step)}
            if through_base:
                merged = {n: base[n] + (v - base[n]) for n, v in merged.items()}
            live = {**live, **merged}
        learner.write(list(live.items()))
    return learner.values


def test_one_peer_is_the_plain_loop_with_the_same_merges(server):
    server.hub.settings_json = merging(steps=3, rounds=14, num_peers=1)
    with seeded_peers(server, A, **FOUR) as (peer,):
        server.hub.apply(dict.fromkeys(ALL, A))
        assert peer.wait().reason == "COMPLETE"
    model = served(server, 14)
    exact = alone(rounds=14, steps=3, through_base=True)
    plain = alone(rounds=14, steps=3, through_base=False)
    for name, value in model.items():
        assert value.tobytes() == exact[name].tobytes(), name
        assert value == pytest.approx(plain[name], rel=1e-5, abs=1e-6)
    merges = {event["round"]: event["alpha"] for event in server.journal("merged")}
    assert merges == pytest.approx({n: 0.2 * (1 - n / 12) for n in (2, 4, 6, 8, 10)})


@pytest.mark.parametrize("codec", ["FP32", "INT8"])
def test_every_peer_holds_the_servers_bits_after_a_merge(server, codec):
    """The owners' copies too, though they pushed their experts; their moments stay."""
    server.hub.settings_json = merging(
        checkpoint__everyRounds=1, sync__compression={"uplink": codec, "downlink": codec}
    )
    gate = Gate()
    with seeded_peers(server, A, B, before_step=gate, **FOUR) as peers:
        server.hub.apply({0: A, 1: A, 2: B, 3: B})
        gate.open(2)
        gate.wait_until_reached(3)
        eventually(lambda: all(saved(peer, 2) for peer in peers), "both hold version 2")
        model = served(server, 2)
        for peer in peers:
            held = saved(peer, 2)
            assert {n: v.tobytes() for n, v in held.items()} == {
                n: v.tobytes() for n, v in model.items()
            }
            assert len(peer.learner.changes) == 1  # nothing was taken away or given anew
            assert peer.learner.discarded == 0
        gate.open()
        eventually(lambda: version_of(server) >= 5, "rounds after the merge")
    assert {event["verdict"] for event in server.journal("push")} == {"VERIFIED"}


def saved(peer, version: int) -> dict[str, np.ndarray] | None:
    """The weights of a peer's checkpoint of this version."""
    found = [values for point, values in peer.volume.checkpoints if point.version == version]
    return found[-1] if found else None


def test_owners_pull_their_own_experts_in_merged_rounds_alone(server):
    server.hub.settings_json = merging(rounds=4, num_peers=1)
    with seeded_peers(server, A, **FOUR) as (peer,):
        server.hub.apply(dict.fromkeys(ALL, A))
        assert peer.wait().reason == "COMPLETE"
    first, second, third, _ = server.journal("committed")
    per_round = [
        after["peers"][0]["bytesDown"] for after in (first, second, third)
    ]  # settled at a commit: what was pulled since the one before
    shared, everything = 16, 5 * 16
    assert per_round[1:] == [shared, everything]


def test_progress_that_missed_a_merge_is_carried_over_it(server, clock):
    """A peer whose push came too late adds it to the merged experts; nothing is lost or doubled."""
    server.hub.settings_json = merging(
        algorithm__merge={**MERGE, "everyRounds": 1, "warmupRounds": 1000},
        sync__quorum=0.5,
        reassignment__unreachableAfterSeconds=200,
        reassignment__reassignAfterSeconds=300,
    )
    gate = Gate()
    with seeded_peers(server, A, B, **FOUR) as peers:
        peers[1].before_step = gate
        server.hub.apply({0: A, 1: A, 2: B, 3: B})
        gate.wait_until_reached()
        eventually(lambda: list(server.hub.state().pushed) == [A], "A has pushed")
        clock.skip(61)
        eventually(lambda: version_of(server) == 1, "a merge without B")
        gate.open()
        eventually(lambda: version_of(server) >= 3, "B is back")
    commits = server.journal("committed")
    assert [row["peer"] for row in commits[1]["peers"]] == [A, B]
    assert {event["verdict"] for event in server.journal("push")} <= {"VERIFIED", "REBASE"}


def final_hash(server) -> str:
    return server.journal("committed")[-1]["modelSha256"]


def test_a_restart_before_a_merge_changes_no_bit(tmp_path):
    settings = merging(rounds=4)
    owners = {0: A, 1: A, 2: B, 3: B}
    with running_server(tmp_path / "whole") as server:
        server.hub.settings_json = settings
        with seeded_peers(server, A, B, **FOUR) as peers:
            server.hub.apply(owners)
            assert [peer.wait().reason for peer in peers] == ["COMPLETE"] * 2
        undisturbed = final_hash(server)
    gate, directory = Gate(), tmp_path / "cut"
    with ExitStack() as first_life:
        server = first_life.enter_context(running_server(directory))
        server.hub.settings_json = settings
        with seeded_peers(server, A, B, **FOUR) as peers:
            peers[1].before_step = gate
            server.hub.apply(owners)
            gate.open(1)
            gate.wait_until_reached(2)
            eventually(lambda: list(server.hub.state().pushed) == [A], "A has pushed round 2")
            first_life.close()
            with running_server(directory, tls=server.tls, port=server.ports.port) as again:
                gate.open()
                assert [peer.wait().reason for peer in peers] == ["COMPLETE"] * 2
                assert final_hash(again) == undisturbed
                assert [event["round"] for event in again.journal("merged")] == [2, 4]
