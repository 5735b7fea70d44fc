"""Kill -9 at every durable write: the server restarts, peers go on, the model is the same."""

from __future__ import annotations

from contextlib import suppress

import grpc
import pytest
from builders.crash_points import KILLS, killed_at
from builders.sync_process import ServerProcess
from builders.sync_server import Hub, eventually, running_server
from builders.tls import make_tls
from builders.toy_peer import ToyPeer, seeded_peers, toy_settings
from spes_sync.disk import Disk

A, B = "uni-a.0", "uni-b.0"
NUM_ROUNDS = 16


def reference(tmp_path) -> tuple[str, set[str]]:
    """The model of a run without a kill, and every crash point that it passed."""
    passed: set[str] = set()
    with running_server(tmp_path / "reference", disk=Disk(reached=passed.add)) as server:
        server.hub.settings_json = toy_settings(rounds=NUM_ROUNDS)
        with seeded_peers(server, A, B) as peers:
            server.hub.apply({0: A, 1: B})
            assert [peer.wait().reason for peer in peers] == ["COMPLETE", "COMPLETE"]
        return server.journal("committed")[-1]["modelSha256"], passed


class Sweep:
    """One job whose server is killed again and again."""

    def __init__(self, tmp_path) -> None:
        self.root = tmp_path
        self.server = ServerProcess(tmp_path / "sync", make_tls(tmp_path / "tls"))
        self.server.directory.mkdir()
        self.left = list(KILLS)
        self.hit: list[str] = []
        self.peers: list[ToyPeer] = []

    def run(self) -> None:
        self.server.start(self.left[0])
        with self.server.hub() as hub:
            hub.settings_json = toy_settings(rounds=NUM_ROUNDS)
            self.peers = [self._peer(hub, name) for name in (A, B)]
            for peer in self.peers:
                peer.start()
            eventually(lambda: self._done(hub), "the job completes", seconds=200)

    def end(self) -> None:
        for peer in self.peers:
            peer.end()
        self.server.reap()

    def _peer(self, hub: Hub, name: str) -> ToyPeer:
        token_file = self.root / f"{name}.token"
        token_file.write_text(hub.invite(name))
        return ToyPeer(
            name=name,
            directory=self.root / name,
            address=self.server.address,
            ca_file=self.server.tls.ca_file,
            token_file=token_file,
        )

    def _done(self, hub: Hub) -> bool:
        if self.server.killed():
            self.hit.append(self.left.pop(0))
            self.server.start(self.left[0] if self.left else "")
        with suppress(grpc.RpcError):
            self._drive(hub)
        return all(peer.outcome or peer.error for peer in self.peers)

    def _drive(self, hub: Hub) -> None:
        """What the hub does on every pass: apply the plan that should be."""
        hub.apply(seed_peer=A)
        known = {peer.peer: peer.caught_up for peer in hub.state().peers}
        if hub.epoch == 0 and known.get(A) and known.get(B):
            hub.apply({0: A, 1: B})
        if hub.epoch == 1 and len(self.left) <= 1:
            hub.apply({0: A, 1: B})


@pytest.mark.timeout(300)  # about 30 restarts of a process
def test_model_is_the_same_wherever_the_server_was_killed(tmp_path, capsys):
    model, passed = reference(tmp_path)
    sweep = Sweep(tmp_path)
    try:
        sweep.run()
        assert [peer.wait().reason for peer in sweep.peers] == ["COMPLETE", "COMPLETE"]
    finally:
        sweep.end()
    assert not sweep.left
    assert passed <= killed_at()
    with capsys.disabled():
        print("\nkilled at:", ", ".join(sweep.hit))  # noqa: T201  the list is the result
    commits = sweep.server.journal("committed")
    assert [each["version"] for each in commits][-1] == NUM_ROUNDS
    assert commits[-1]["modelSha256"] == model
    assert commits[-1]["globalTokens"] == NUM_ROUNDS * 2 * 32
