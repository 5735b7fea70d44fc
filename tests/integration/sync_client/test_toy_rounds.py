"""Whole rounds of toy peers against a real server: the worked example, to its numbers."""

from __future__ import annotations

import pytest
from builders.sync_server import job_settings, running_server
from builders.toy_learner import PSI, phi
from builders.toy_peer import seeded_peers, served

A, B = "uni-a.0", "uni-b.0"


@pytest.fixture
def server(tmp_path):
    with running_server(tmp_path / "sync") as running:
        yield running


def settings(steps: int, rounds: int, num_peers: int = 2, **changes) -> str:
    tokens = 16 * steps * rounds * num_peers
    return job_settings(
        **{
            "sync__everySteps": steps,
            "training__maxTokens": tokens,
            "members__min": num_peers,
            "data__heldOutFraction": 0.0,
            **changes,
        }
    )


@pytest.mark.parametrize(
    ("steps", "psi", "phis"), [(1, 0.2, (0.2, 0.4)), (2, 0.38, (0.38, 0.76))], ids=["H=1", "H=2"]
)
def test_two_peers_reach_the_worked_numbers(server, steps, psi, phis):
    server.hub.settings_json = settings(steps, rounds=1)
    with seeded_peers(server, A, B) as peers:
        server.hub.apply({0: A, 1: B})
        assert [peer.wait().reason for peer in peers] == ["COMPLETE", "COMPLETE"]
    model = served(server, 1)
    assert model[PSI] == pytest.approx(psi, rel=1e-6)
    assert [model[phi(0)][0], model[phi(1)][0]] == pytest.approx(phis, rel=1e-6)
