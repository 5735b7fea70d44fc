"""The final version is evaluated, whoever is lost meanwhile."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest
from builders.sync_server import DEADLINE_SECONDS, eventually, running_server
from builders.toy_learner import PSI, phi
from builders.toy_peer import ToyPeer, seeded_peers, served, toy_settings

A, B = "uni-a.0", "uni-b.0"


class Held:
    """Holds a peer's evaluation of the final version."""

    def __init__(self, peer: ToyPeer) -> None:
        learner = peer.learner
        assert learner is not None
        self.begun, self.go_on = threading.Event(), threading.Event()
        measure = learner.evaluate

        def evaluate(num_tokens: int) -> float:
            if learner.positions:
                self.begun.set()
                assert self.go_on.wait(DEADLINE_SECONDS)
            return measure(num_tokens)

        learner.evaluate = evaluate


def settings(**changes) -> str:
    return toy_settings(**{"rounds": 1, "data__heldOutFraction": 0.05, **changes})


def test_the_final_version_is_evaluated_before_the_peers_are_gone(server):
    server.hub.settings_json = settings(rounds=3)
    with seeded_peers(server, A, B) as peers:
        server.hub.apply({0: A, 1: B})
        assert [peer.wait().reason for peer in peers] == ["COMPLETE", "COMPLETE"]
    assert [event["version"] for event in server.journal("evaluated")] == [0, 1, 2, 3]
    told = {event["version"]: event["loss"] for event in server.journal("evaluated")}
    assert peers[0].learner.losses == pytest.approx(told)  # by which it keeps checkpoints
    model, last = served(server, 3), server.journal("evaluated")[-1]
    loss = ((model[PSI] - 2) ** 2 + (model[phi(0)] + model[phi(1)] - 3) ** 2).mean()
    assert last["loss"] == pytest.approx(loss)
    assert server.hub.state().held_out_loss == pytest.approx(loss)
    assert peers[0].outcome.version == 3


def test_the_other_peers_do_not_wait_for_the_last_evaluation(server):
    server.hub.settings_json = settings()
    with seeded_peers(server, A, B) as (a, b):
        held = Held(a)
        server.hub.apply({0: A, 1: B})
        assert b.wait().reason == "COMPLETE"
        assert held.begun.wait(DEADLINE_SECONDS)
        held.go_on.set()
        assert a.wait().reason == "COMPLETE"
    assert server.journal("evaluated")[-1]["version"] == 1


def test_a_peer_that_evaluates_for_ever_is_not_waited_for(server, clock):
    server.hub.settings_json = settings(num_peers=1)
    with seeded_peers(server, A) as (peer,):
        held = Held(peer)
        server.hub.apply({0: A, 1: A})
        assert held.begun.wait(DEADLINE_SECONDS)
        clock.skip(61)
        eventually(lambda: not server.journal("stop")[-1]["evaluate"], "the server gives up")
        held.go_on.set()
        assert peer.wait().reason == "COMPLETE"


def test_a_restarted_server_still_wants_the_last_evaluation(tmp_path):
    with ExitStack() as life:
        server = life.enter_context(running_server(tmp_path / "sync"))
        server.hub.settings_json = settings(num_peers=1)
        with seeded_peers(server, A) as (peer,):
            held = Held(peer)
            server.hub.apply({0: A, 1: A})
            assert held.begun.wait(DEADLINE_SECONDS)
            life.close()
            with running_server(tmp_path / "sync", tls=server.tls, port=server.ports.port) as again:
                held.go_on.set()
                assert peer.wait().reason == "COMPLETE"
                assert again.journal("evaluated")[-1]["version"] == 1
