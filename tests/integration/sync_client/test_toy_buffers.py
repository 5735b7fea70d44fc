"""Mode Buffered over the wire: the first pushes make a version, the others carry their work on."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from builders.sync_server import eventually, running_server
from builders.toy_learner import PSI, Drifter, phi, toy_manifest
from builders.toy_peer import seeded_peers, served, toy_settings, version_of
from spes_sync.client import StepPosition

A, B, C = "uni-a.0", "uni-b.0", "uni-c.0"
EVERYTHING = {"manifest": toy_manifest(replicated=True)}
DRIFTS = {
    "kind": Drifter,
    "targets_of": {A: (1.0, 16), B: (2.0, 16), C: (-4.0, 16)},
}


def settings(name: str = "FedAvg", *, rounds: int, **buffer) -> str:
    return toy_settings(
        steps=2,
        rounds=rounds,
        num_peers=buffer.pop("num_peers", 3),
        algorithm__name=name,
        checkpoint__keepLast=1000,
        sync__mode="Buffered",
        sync__buffer=buffer,
    )


class OwnDrifter(Drifter):
    """Leaves the experts of others alone."""

    def step(self, position: StepPosition):
        frozen = {n: np.array(self.values[n]) for n in map(phi, {0, 1} - set(self.owned))}
        result = super().step(position)
        self.write(frozen.items())
        return result


class SlowInSecondStep:
    """Holds a peer in the second step of its first round until it is let go."""

    def __init__(self) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        self._steps = 0

    def __call__(self, _: StepPosition) -> None:
        self._steps += 1
        if self._steps == 2:
            self.reached.set()
            assert self.go_on.wait(60)

    def others_wait(self, _: StepPosition) -> None:
        """Let the other peers not begin before it is there."""
        assert self.reached.wait(60)


def rows_of(server, version: int) -> dict[str, dict]:
    (commit,) = (c for c in server.journal("committed") if c["version"] == version)
    return {row["peer"]: row for row in commit["peers"]}


def test_a_slow_peer_misses_versions_and_its_work_counts_for_less(server):
    """Two steps of 1, of 2 and of -4; C's come three versions late, at half their weight."""
    server.hub.settings_json = settings(rounds=8, size=2, maxStaleness=3)
    slow = SlowInSecondStep()
    with seeded_peers(server, A, B, C, **EVERYTHING, **DRIFTS) as peers:
        for peer in peers[:2]:
            peer.before_step = slow.others_wait
        peers[2].before_step = slow
        server.hub.apply({}, peers=(A, B, C))
        eventually(lambda: version_of(server) == 3, "three versions of A and B")
        eventually(lambda: len(server.hub.state().pushed) == 2, "the fourth waits for C")
        assert version_of(server) == 3
        slow.go_on.set()
        eventually(lambda: version_of(server) >= 4, "the fourth version")
    for version in (1, 2, 3):
        assert set(rows_of(server, version)) == {A, B}
        assert float(served(server, version)[PSI][0]) == pytest.approx(3.0 * version)
    rows = rows_of(server, 4)
    assert {peer: row["staleness"] for peer, row in rows.items()} == {A: 0, B: 0, C: 3}
    assert rows[C]["weight"] == pytest.approx(1 / 6)
    assert float(served(server, 4)[PSI][0]) == pytest.approx(9 + (2 + 4 - 8 * 0.5) / 3)


def test_experts_are_their_owners_at_full_weight_however_late(server):
    server.hub.settings_json = settings("SPES", rounds=8, size=1, maxStaleness=2, num_peers=2)
    slow = SlowInSecondStep()
    with seeded_peers(server, A, B, **{**DRIFTS, "kind": OwnDrifter}) as peers:
        peers[0].before_step, peers[1].before_step = slow.others_wait, slow
        server.hub.apply({0: A, 1: B})
        eventually(lambda: version_of(server) == 2, "two versions of A")
        slow.go_on.set()
        eventually(lambda: version_of(server) >= 3, "a version of both")
    model = served(server, 3)
    assert rows_of(server, 3)[B]["staleness"] == 2
    assert float(model[phi(1)][0]) == 2 * 2.0
    assert float(model[phi(0)][0]) == 3 * 2 * 1.0
    assert float(model[PSI][0]) == pytest.approx(2 * 2 + (2 + 4 * 3**-0.5) / 2)


def test_a_buffer_for_all_is_fedavg_bit_for_bit(tmp_path):
    hashes = set()
    for job in (
        settings(rounds=4, size=3, num_peers=3),
        settings(rounds=4, size=1, maxStaleness=0),
        toy_settings(steps=2, rounds=4, num_peers=3, algorithm__name="FedAvg"),
    ):
        with running_server(tmp_path / str(len(hashes)) / str(hash(job))) as server:
            server.hub.settings_json = job
            with seeded_peers(server, A, B, C, **EVERYTHING, **DRIFTS) as peers:
                server.hub.apply({}, peers=(A, B, C))
                assert [peer.wait().reason for peer in peers] == ["COMPLETE"] * 3
            hashes.add(server.journal("committed")[-1]["modelSha256"])
    assert len(hashes) == 1


def test_fedasync_goes_a_share_of_the_way_with_every_push(server):
    job = settings(rounds=2, size=1, rate=0.6, maxStaleness=0, num_peers=1)
    server.hub.settings_json = job
    with seeded_peers(server, A, **EVERYTHING, **DRIFTS) as (peer,):
        server.hub.apply({}, peers=(A,))
        assert peer.wait().reason == "COMPLETE"
    assert float(served(server, 2)[PSI][0]) == pytest.approx(0.6 * 2 + 0.6 * 2)
