"""A Stop that comes while a push or a pull is under way."""

from __future__ import annotations

import pytest
from builders.peer_events import committed, plan
from builders.scripted_sync import scripted_sync
from builders.sync_server import DEADLINE_SECONDS
from builders.toy_peer import ToyPeer, toy_settings
from spes_proto.v1 import sync_pb2

A = "uni-a.0"
STOP = sync_pb2.ServerEvent(stop=sync_pb2.Stop(reason="COMPLETE"))


@pytest.fixture
def scripted(tmp_path):
    """A server under the test's control and a peer that has started to talk to it."""
    token = tmp_path / "token"
    token.write_text("0000000000000000.first")
    with scripted_sync(tmp_path, toy_settings(steps=1, num_peers=1)) as (sync, tls):
        peer = ToyPeer(
            name=A,
            directory=tmp_path / A,
            address=sync.address,
            ca_file=tls.ca_file,
            token_file=token,
            manifest=sync.manifest,
        )
        peer.start()
        try:
            yield sync, peer
        finally:
            peer.end()


def test_a_push_is_broken_off(scripted):
    sync, peer = scripted
    sync.say(sync_pb2.ServerEvent(seed_wanted=sync_pb2.SeedWanted()))
    assert sync.pushing.wait(DEADLINE_SECONDS)
    sync.say(STOP)
    assert peer.wait().reason == "COMPLETE"  # in less than PUSH_PROGRESS_TIMEOUT


def test_a_pull_is_broken_off(scripted):
    sync, peer = scripted
    sync.say(plan({0: (A, 1), 1: (A, 1)}, peers=(A,)), committed(3))
    assert sync.pulling.wait(DEADLINE_SECONDS)
    sync.say(STOP)
    assert peer.wait().reason == "COMPLETE"  # though the pull makes progress
