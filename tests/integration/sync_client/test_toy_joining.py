"""Peers that join and return while others train, over links that are slow or break."""

from __future__ import annotations

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
    committed_peers,
    make_peer,
    seeded_peers,
    served,
    toy_settings,
    version_of,
)
from spes_sync.client import StepPosition

A, B, C = "uni-a.0", "uni-b.0", "uni-c.0"


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
        eventually(lambda: all_caught_up(server, (C,)), "the joiner has caught up")
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


def test_rejoin_survives_the_loss_of_another_peer_and_of_the_server(tmp_path):
    directory, manifest = tmp_path / "sync", toy_manifest(num_experts=2, size=100_000)
    with ExitStack() as first_life, ExitStack() as later:
        server = first_life.enter_context(running_server(directory))
        server.hub.settings_json = toy_settings(num_peers=1)
        link = later.enter_context(relay_to(server.ports.port))
        (other,) = later.enter_context(seeded_peers(server, A, manifest=manifest))
        server.hub.apply({0: A, 1: A})
        eventually(lambda: version_of(server) >= 1, "a round")
        joiner = make_peer(server, B, manifest=manifest)
        joiner.address, link.bytes_per_second = link.address, 1e6  # a version takes a second
        server.hub.apply()
        joiner.start()
        later.callback(joiner.end)
        eventually(lambda: link.bytes_down > 100_000, "it has begun to pull")
        other.crash()
        first_life.close()
        with running_server(directory, tls=server.tls, port=server.ports.port) as again:
            eventually(lambda: all_caught_up(again, (B,)), "it has pulled the model")
            before = version_of(again)
            again.hub.settings_json, again.hub.epoch = server.hub.settings_json, server.hub.epoch
            again.hub.apply({0: B, 1: B})
            eventually(lambda: version_of(again) > before, "it trains alone")
            assert committed_peers(again, before + 1) == [B]


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


def test_joiner_on_a_slow_link_takes_part_in_the_round_after_it_is_placed(server):
    """While it pulls a version the next one is committed, and still nobody leaves it out."""
    server.hub.settings_json = toy_settings(num_peers=1)
    manifest = toy_manifest(num_experts=2, size=100_000)
    with relay_to(server.ports.port) as link, seeded_peers(server, A, manifest=manifest) as (a,):
        a.before_step = gate = Gate()
        server.hub.apply({0: A, 1: A})
        gate.open(1)
        gate.wait_until_reached(2)
        joiner = make_peer(server, B, manifest=manifest)
        joiner.address, link.bytes_per_second = (
            link.address,
            1e6,
        )  # a version takes a second or more
        server.hub.apply()
        joiner.start()
        try:
            eventually(lambda: link.bytes_down > 100_000, "it has begun to pull version 1")
            gate.open(2)
            eventually(lambda: version_of(server) == 2, "others go on meanwhile")
            assert not all_caught_up(server, (B,))
            eventually(lambda: all_caught_up(server, (B,)), "it has version 1")
            server.hub.apply({0: A, 1: B})
            gate.open(4)
            eventually(lambda: version_of(server) == 4, "the round after it is placed")
            assert committed_peers(server, 4) == [A, B]
        finally:
            joiner.end()
