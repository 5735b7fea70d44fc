"""A server that goes away and comes back, and volumes that are not as they should be."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import grpc
import numpy as np
import pytest
from builders.raw_peer import MANIFEST, RawPeer, delta, raw_peers
from builders.sync_server import SkippingClock, eventually, running_server
from builders.tls import make_tls
from spes_proto.v1 import control_pb2, sync_pb2
from spes_sync.disk import Disk
from spes_sync.errors import SyncError, VolumeError
from spes_sync.server.server import SyncServer, Where
from spes_sync.server.tls import TlsFiles
from spes_sync.volume import Volume

OWNERS = {0: "a.0", 1: "a.0", 2: "b.0", 3: "b.0"}
SHARED = "embedding.weight"


def resumed(server, old: RawPeer, version: int) -> RawPeer:
    """The same process of a peer, on the server that is there now."""
    peer = RawPeer(server, old.name, old.token)
    peer.reply, peer.seen = old.reply, old.seen
    peer.connect(version)
    return peer


def test_open_round_goes_on_with_its_complete_pushes(tmp_path):
    tls = make_tls(tmp_path / "tls")
    with (
        running_server(tmp_path / "sync", tls=tls) as server,
        raw_peers(server, "a.0", "b.0") as (a, b),
    ):
        server.hub.apply(OWNERS)
        for peer in (a, b):
            peer.hear("round_open")
        a.push(delta([0, 1], 1.0))
    with running_server(tmp_path / "sync", tls=tls) as server:
        state = server.hub.state()
        assert (state.phase, state.round, list(state.pushed)) == (control_pb2.OPEN, 1, ["a.0"])
        a, b = resumed(server, a, 0), resumed(server, b, 0)
        a.hear("round_open")
        assert a.push(delta([0, 1], 1.0)).verdict == sync_pb2.ALREADY_HAVE
        assert [lease.first for lease in b.hear("round_open").lease] == [4]
        b.push(delta([2, 3], 3.0))
        committed = b.hear("committed")
        assert [each.peer for each in committed.included] == ["a.0", "b.0"]
        assert np.all(b.pull(-1)[1][SHARED] == 2.0)
        a.close()
        b.close()


def test_server_does_not_say_stop_when_it_is_told_to_end(tmp_path):
    with ExitStack() as afterwards:
        with running_server(tmp_path / "sync") as server:
            (a,) = afterwards.enter_context(raw_peers(server, "a.0"))
            server.hub.apply({0: "a.0"})
            a.hear("round_open")
        with pytest.raises(grpc.RpcError):
            a.hear("stop")


def test_peer_that_missed_the_commit_learns_what_became_of_its_push(tmp_path):
    tls = make_tls(tmp_path / "tls")
    with running_server(tmp_path / "sync", tls=tls) as server, raw_peers(server, "a.0") as (a,):
        server.hub.apply({0: "a.0"})
        for _ in range(3):
            a.hear("round_open")
            a.push(delta([0], 1.0))
        a.hear("round_open")
    with running_server(tmp_path / "sync", tls=tls) as server:
        a = resumed(server, a, 0)
        told = [a.hear("committed") for _ in range(2)]
        assert [each.version for each in told] == [1, 3]
        assert told[0].included[0].peer == "a.0"
        a.close()


def spoil(name: str) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:-1] + b"\xff")

    return act


def replaced(name: str, before: bytes, after: bytes) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        content = (folder / name).read_bytes()
        assert before in content
        (folder / name).write_bytes(content.replace(before, after))

    return act


def removed(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        pytest.param(spoil("model.safetensors"), "model.safetensors is damaged", id="model"),
        pytest.param(spoil("commit.json"), "commit.json is damaged", id="record"),
        pytest.param(spoil("tensors.json"), "tensors.json is damaged", id="hashes"),
        pytest.param(shutil.rmtree, "commit.json is missing", id="all"),
    ],
)
def test_damaged_snapshot_falls_back_on_the_one_before(tmp_path, caplog, damage, problem):
    tls = make_tls(tmp_path / "tls")
    with running_server(tmp_path / "sync", tls=tls) as server, raw_peers(server, "a.0") as (a,):
        server.hub.apply({0: "a.0"})
        for _ in range(2):
            a.hear("round_open")
            a.push(delta([0], 1.0))
        a.hear("round_open")
        eventually(lambda: server.hub.state().version == 2)
    damage(tmp_path / "sync/versions/000002")
    with running_server(tmp_path / "sync", tls=tls) as server:
        state = server.hub.state()
        assert state.version == 1
        assert f"000002/{problem}" in server.journal("recovered")[-1]["problem"]
        assert "going on from version 1" in caplog.text


def test_no_complete_version_left_is_an_error(tmp_path):
    tls = make_tls(tmp_path / "tls")
    with running_server(tmp_path / "sync", tls=tls) as server, raw_peers(server, "a.0"):
        pass
    (tmp_path / "sync/versions/000000/model.safetensors").write_bytes(b"")
    with (
        pytest.raises(VolumeError, match="no complete version"),
        running_server(tmp_path / "sync", tls=tls),
    ):
        pass


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        pytest.param(removed("plan.json"), "plan.json is missing", id="no plan"),
        pytest.param(removed("manifest.json"), "manifest.json is missing", id="no manifest"),
        pytest.param(removed("data.json"), "data.json is missing", id="no leases"),
        pytest.param(replaced("plan.json", b"0b5c", b"0b5d"), "plan.json of 0b5d", id="other job"),
        pytest.param(spoil("settings.json"), "settings.json is damaged", id="settings"),
        pytest.param(spoil("HEAD"), "HEAD is damaged .* such as 000001", id="head"),
    ],
)
def test_a_model_is_never_given_up_for_a_damaged_file_beside_it(tmp_path, damage, problem):
    tls = make_tls(tmp_path / "tls")
    with running_server(tmp_path / "sync", tls=tls) as server, raw_peers(server, "a.0") as (a,):
        server.hub.apply({0: "a.0"})
        a.hear("round_open")
        a.push(delta([0], 1.0))
        a.hear("committed")
    model = tmp_path / "sync/versions/000001/model.safetensors"
    before = model.read_bytes()
    damage(tmp_path / "sync")
    with (
        pytest.raises(VolumeError, match=problem),
        running_server(tmp_path / "sync", tls=tls),
    ):
        pass
    assert model.read_bytes() == before


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(replaced("a.0.push", b'"sha256"', b'"sha-56"'), id="push"),
        pytest.param(spoil("round.json"), id="round"),
        pytest.param(replaced("round.json", b'"expected"', b'"exp"'), id="round without peers"),
    ],
)
def test_damage_to_an_open_round_costs_its_pushes_at_most(tmp_path, damage):
    tls = make_tls(tmp_path / "tls")
    with (
        running_server(tmp_path / "sync", tls=tls) as server,
        raw_peers(server, "a.0", "b.0") as (a, b),
    ):
        server.hub.apply(OWNERS)
        for peer in (a, b):
            peer.hear("round_open")
        a.push(delta([0, 1], 1.0))
    damage(tmp_path / "sync/open/000001")
    with running_server(tmp_path / "sync", tls=tls) as server:
        assert (server.hub.state().version, list(server.hub.state().pushed)) == (0, [])


def test_second_server_on_a_volume_names_the_holder(sync_server):
    with pytest.raises(VolumeError, match=f"held by another server .pid {os.getpid()} on "):
        Volume.hold(sync_server.directory, Disk())


def test_second_server_on_a_port_is_an_error(sync_server, tmp_path):
    where = Where(
        directory=tmp_path / "other",
        tls=TlsFiles.inside(sync_server.tls.directory),
        port=sync_server.ports.port,
    )

    async def start() -> None:
        server = SyncServer(where)
        try:
            await server.start()
        finally:
            await server.close()

    with pytest.raises(SyncError, match=f"cannot listen on 127.0.0.1:{sync_server.ports.port}"):
        asyncio.run(start())


def test_volume_of_another_job_is_refused(tmp_path):
    tls = make_tls(tmp_path / "tls")
    with running_server(tmp_path / "sync", tls=tls) as server:
        server.hub.apply()
    with running_server(tmp_path / "sync", tls=tls) as server:
        server.hub.job_uid = "another"
        with pytest.raises(grpc.RpcError) as refused:
            server.hub.apply()
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "belongs to job 0b5c1d2e-job" in refused.value.details()


def test_higher_incarnation_begins_at_seeding_with_the_same_sessions(tmp_path):
    with running_server(tmp_path / "sync") as server, raw_peers(server, "a.0") as (a,):
        server.hub.apply({0: "a.0"})
        a.hear("round_open")
        a.push(delta([0], 1.0))
        a.hear("round_open")
        server.hub.incarnation = 2
        server.hub.apply(seed_peer="a.0")
        a.hear("seed_wanted")
        assert server.hub.state().version == -1
        ones = {name: np.ones(MANIFEST[name].shape, np.float32) for name in MANIFEST.names}
        reply = a.push(ones, kind=sync_pb2.SEED, base_version=-1, round=0, incarnation=2)
        assert reply.verdict == sync_pb2.VERIFIED
        assert a.hear("committed").version == 0
        assert np.all(a.pull(-1)[1][SHARED] == 1.0)


class FullDisk:
    """fsync that finds the disk full while `full` is set."""

    def __init__(self) -> None:
        self.full = False

    def fsync(self, handle: int) -> None:
        if self.full and Path(f"/proc/self/fd/{handle}").readlink().name == "model.safetensors":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_full_disk_holds_the_round_until_it_is_freed(tmp_path):
    disk, clock = FullDisk(), SkippingClock()
    with (
        running_server(tmp_path / "sync", disk=Disk(fsync=disk.fsync), clock=clock) as server,
        raw_peers(server, "a.0") as (a,),
    ):
        server.hub.apply({0: "a.0"})
        a.hear("round_open")
        disk.full = True
        a.push(delta([0], 1.0))
        eventually(lambda: server.hub.state().phase == control_pb2.HELD, "held")
        problem = server.hub.state().problem
        assert "versions/000001/model.safetensors (needs 144 bytes)" in problem
        assert (server.directory / "open/000001/a.0.push").exists()
        disk.full = False
        clock.skip(10)
        assert a.hear("committed").version == 1
        eventually(lambda: not server.hub.state().problem, "problem is over")


def test_full_disk_at_the_seed_is_said_and_the_seed_sent_again(tmp_path):
    disk = FullDisk()
    disk.full = True
    with running_server(tmp_path / "sync", disk=Disk(fsync=disk.fsync)) as server:
        token = server.hub.invite("a.0")
        server.hub.apply(seed_peer="a.0")
        peer = RawPeer(server, "a.0", token)
        peer.join()
        peer.connect()
        reply = peer.seed()
        assert (reply.verdict, reply.reason) == (sync_pb2.REFUSED, sync_pb2.DISK_FULL)
        assert "no space left for" in server.hub.state().problem
        disk.full = False
        assert peer.seed().verdict == sync_pb2.VERIFIED
        eventually(lambda: not server.hub.state().problem, "problem is over")
        peer.close()
