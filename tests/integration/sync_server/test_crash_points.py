"""Crash points that a plain job does not pass: what a crash there leaves is enough to go on."""

from __future__ import annotations

import json

import numpy as np
import pytest
from builders.crash_points import (
    COMMIT_POINTS,
    MOMENTS_POINTS,
    PEER_LOSS_POINT,
    PEER_PUSH_POINTS,
    ROLL_BACK_POINT,
    Photographs,
    killed_at,
    named_points,
)
from builders.raw_peer import MANIFEST, RawPeer, delta, parts, raw_peers
from builders.sync_server import eventually, job_settings, running_server
from builders.tls import make_tls
from spes_proto.v1 import control_pb2, sync_pb2
from spes_sync.disk import Disk

OWNERS = {0: "a.0", 1: "a.0", 2: "b.0", 3: "b.0"}


def test_every_named_crash_point_is_hit():
    server = killed_at() | {*COMMIT_POINTS, *MOMENTS_POINTS, ROLL_BACK_POINT}
    assert named_points() == server | {*PEER_PUSH_POINTS, PEER_LOSS_POINT}


def resumed(server, old: RawPeer, version: int) -> RawPeer:
    """The same process of a peer, on the server that is there now."""
    peer = RawPeer(server, old.name, old.token)
    peer.reply, peer.seen = old.reply, old.seen
    peer.connect(version)
    return peer


def push_round_1(server, peers) -> str:
    """Let both push whatever round 1 still wants of them; its model."""
    everything = server.hub.replicated
    for peer, experts, value in zip(peers, ([0, 1], [2, 3]), (1.0, 3.0), strict=True):
        if server.hub.state().version == 0:
            peer.push(delta(range(4) if everything else experts, value))
    eventually(lambda: server.hub.state().version == 1, "version 1")
    record = json.loads((server.directory / "versions/000001/commit.json").read_bytes())
    return record["model_sha256"]


@pytest.mark.parametrize("point", COMMIT_POINTS)
def test_a_crash_while_a_version_is_written_changes_no_bit(tmp_path, point):
    tls, settings = make_tls(tmp_path / "tls"), job_settings(**COMMIT_POINTS[point])
    photographs = Photographs(tmp_path / "sync", (point,))
    with running_server(tmp_path / "sync", tls=tls, disk=Disk(reached=photographs)) as server:
        server.hub.settings_json = settings
        with raw_peers(server, "a.0", "b.0") as peers:
            server.hub.apply({} if server.hub.replicated else OWNERS, peers=["a.0", "b.0"])
            for peer in peers:
                peer.hear("round_open")
            undisturbed = push_round_1(server, peers)
    with running_server(photographs.taken[point], tls=tls) as server:
        server.hub.settings_json = settings
        assert server.hub.state().phase == control_pb2.OPEN
        again = [resumed(server, peer, 0) for peer in peers]
        assert push_round_1(server, again) == undisturbed
        for peer in again:
            peer.close()


def push_moments(peer: RawPeer, expert: int) -> sync_pb2.PushReply:
    manifest = MANIFEST.moments_of(expert)
    values = {tensor.name: np.full(tensor.shape, 0.5, np.float32) for tensor in manifest}
    header = peer.header({}, kind=sync_pb2.FINAL, part=sync_pb2.MOMENTS, steps=0, tokens=0)
    header.key.expert = expert
    header.tensors.extend(tensor.to_proto() for tensor in manifest)
    header.total_bytes = manifest.num_bytes
    return peer.push_parts(parts(header, values))


@pytest.mark.parametrize("point", MOMENTS_POINTS)
def test_a_crash_while_moments_are_kept_loses_none_that_are_sent_again(tmp_path, point):
    tls, photographs = make_tls(tmp_path / "tls"), Photographs(tmp_path / "sync", MOMENTS_POINTS)
    with (
        running_server(tmp_path / "sync", tls=tls, disk=Disk(reached=photographs)) as server,
        raw_peers(server, "a.0", "b.0") as (a, b),
    ):
        server.hub.apply(OWNERS)
        for peer in (a, b):
            peer.hear("round_open")
        assert push_moments(a, 0).verdict == sync_pb2.VERIFIED
    with running_server(photographs.taken[point], tls=tls) as server:
        a, b = resumed(server, a, 0), resumed(server, b, 0)
        assert push_moments(a, 0).verdict == sync_pb2.VERIFIED
        _, values = b.pull(0, moments_of=[0])
        assert sorted(values) == sorted(MANIFEST.moments_of(0).names)
        assert all(np.all(value == 0.5) for value in values.values())
        a.close()
        b.close()


def test_a_crash_after_head_is_rolled_back_goes_on_from_there(tmp_path):
    tls, volume = make_tls(tmp_path / "tls"), tmp_path / "sync"
    with running_server(volume, tls=tls) as server, raw_peers(server, "a.0") as (a,):
        server.hub.apply({0: "a.0"})
        for _ in range(2):
            a.hear("round_open")
            a.push(delta([0], 1.0))
        a.hear("round_open")
        eventually(lambda: server.hub.state().version == 2, "version 2")
    damaged = volume / "versions/000002/model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\xff")
    photographs = Photographs(volume, (ROLL_BACK_POINT,))
    with running_server(volume, tls=tls, disk=Disk(reached=photographs)):
        pass
    with running_server(photographs.taken[ROLL_BACK_POINT], tls=tls) as server:
        assert server.hub.state().version == 1
        a = resumed(server, a, 1)
        assert a.hear("round_open").round == 2
        assert a.push(delta([0], 1.0)).verdict == sync_pb2.VERIFIED
        assert a.hear("committed").version == 2
        a.close()


def test_a_crash_after_the_last_commit_still_ends_the_job(tmp_path):
    tls = make_tls(tmp_path / "tls")
    photographs = Photographs(tmp_path / "sync")
    with running_server(tmp_path / "sync", tls=tls, disk=Disk(reached=photographs)) as server:
        server.hub.settings_json = job_settings(training__maxTokens=30, data__heldOutFraction=0.0)
        with raw_peers(server, "a.0") as (a,):
            server.hub.apply({0: "a.0"})
            a.hear("round_open")
            photographs.wanted = {"head"}
            a.push(delta([0], 1.0))
            assert a.hear("stop").reason == "COMPLETE"
    with running_server(photographs.taken["head"], tls=tls) as server:
        a = resumed(server, a, 0)
        assert a.hear("stop").reason == "COMPLETE"
        assert server.journal("complete")
        a.close()
