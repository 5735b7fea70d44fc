"""Whole rounds through a real server: seed, push, commit, pull."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from builders.raw_peer import MANIFEST, RawPeer, delta, parts, raw_peers
from builders.sync_server import (
    SkippingClock,
    eventually,
    job_settings,
    running_server,
)
from spes_proto.v1 import sync_pb2

OWNERS = {0: "a.0", 1: "a.0", 2: "b.0", 3: "b.0"}
SHARED, EXPERT_0, EXPERT_3 = "embedding.weight", "layers.0.experts.0.w1", "layers.0.experts.3.w1"


def opened(server, peers, owners=None) -> None:
    server.hub.apply(owners or OWNERS)
    for peer in peers:
        peer.hear("round_open")


def refusal(reply) -> tuple[str, str]:
    return sync_pb2.Verdict.Name(reply.verdict), sync_pb2.Reason.Name(reply.reason)


def test_shared_is_averaged_and_experts_are_their_owners(sync_server):
    with raw_peers(sync_server, "a.0", "b.0") as (a, b):
        opened(sync_server, (a, b))
        assert b.push(delta([2, 3], 3.0)).verdict == sync_pb2.VERIFIED
        assert a.push(delta([0, 1], 1.0)).verdict == sync_pb2.VERIFIED
        committed = a.hear("committed")
        assert [each.peer for each in committed.included] == ["a.0", "b.0"]
        header, model = a.pull(-1)
        assert (header.version, header.base_version) == (1, -1)
        assert np.all(model[SHARED] == 2.0)
        assert np.all(model[EXPERT_0] == 1.0)
        assert np.all(model[EXPERT_3] == 3.0)


def test_model_is_the_same_whatever_the_arrival_order(tmp_path):
    hashes = set()
    for number, order in enumerate(itertools.permutations((0, 1, 2))):
        if number % 2:
            continue
        with (
            running_server(tmp_path / str(number)) as server,
            raw_peers(server, "a.0", "b.0", "c.0") as peers,
        ):
            opened(server, peers, {0: "a.0", 1: "b.0", 2: "c.0"})
            for index in order:
                peers[index].push(delta([index], 0.1 + index / 3))
            peers[0].hear("committed")
            hashes.add(server.journal("committed")[0]["modelSha256"])
    assert len(hashes) == 1


def test_delta_leaves_out_what_this_process_pushed_itself(sync_server):
    with raw_peers(sync_server, "a.0", "b.0") as (a, b):
        opened(sync_server, (a, b))
        a.push(delta([0, 1], 1.0))
        b.push(delta([2, 3], 3.0))
        b.hear("committed")
        header, sent = b.pull(0)
        assert (header.base_version, header.version) == (0, 1)
        assert sorted(sent) == [SHARED, EXPERT_0, "layers.0.experts.1.w1"]
        again = RawPeer(sync_server, "b.0", b.token)
        again.join()
        assert sorted(again.pull(0)[1]) == sorted(MANIFEST.names)
        again.close()


def test_old_base_gets_the_model_in_full_and_the_latest_gets_nothing(sync_server):
    with raw_peers(sync_server, "a.0") as (a,):
        sync_server.hub.apply({0: "a.0"})
        for _ in range(6):
            a.hear("round_open")
            a.push(delta([0], 1.0))
        a.hear("committed")
        eventually(
            lambda: not (sync_server.directory / "versions/000001/delta.safetensors").exists()
        )
        assert a.pull(0)[0].base_version == -1
        assert a.pull(3)[0].version == 4
        assert a.pull(6)[0].total_bytes == 0


def test_broken_pull_resumes_at_its_offset(sync_server):
    with raw_peers(sync_server, "a.0") as (a,):
        request = sync_pb2.PullRequest(have_version=-1, offset=100)
        whole = b"".join(
            p.chunk.data
            for p in a.stub.Pull(sync_pb2.PullRequest(have_version=-1), metadata=a.metadata)
        )
        rest = list(a.stub.Pull(request, metadata=a.metadata))
        assert rest[1].chunk.offset == 100
        assert rest[1].chunk.data == whole[100:]
        assert rest[-1].end.sha256


def test_joiner_gets_the_last_version_during_an_open_round(sync_server):
    with raw_peers(sync_server, "a.0") as (a,):
        opened(sync_server, (a,), {0: "a.0"})
        token = sync_server.hub.invite("c.0")
        sync_server.hub.apply()
        joiner = RawPeer(sync_server, "c.0", token)
        reply = joiner.join()
        assert reply.version == 0
        assert reply.manifest.sha256 == MANIFEST.sha256
        assert joiner.pull(-1)[0].version == 0
        joiner.close()


# Refusals.


def test_truncated_and_corrupt_pushes_are_refused_and_sent_again(sync_server):
    with raw_peers(sync_server, "a.0", "b.0") as (a, b):
        opened(sync_server, (a, b))
        values = delta([0, 1], 1.0)
        whole = list(parts(a.header(values), values))
        assert refusal(a.push_parts(whole[:-1])) == ("REFUSED", "TRUNCATED")
        bad = sync_pb2.PushPart()
        bad.CopyFrom(whole[1])
        bad.chunk.data = b"\x00" * len(bad.chunk.data)
        assert refusal(a.push_parts([whole[0], bad, whole[2]])) == ("REFUSED", "BAD_CHECKSUM")
        end = sync_pb2.PushPart(end=sync_pb2.End(sha256="0" * 64))
        assert refusal(a.push_parts([*whole[:-1], end])) == ("REFUSED", "BAD_CHECKSUM")
        assert a.push_parts(whole).verdict == sync_pb2.VERIFIED
        assert a.push_parts(whole).verdict == sync_pb2.ALREADY_HAVE
        refused = [e["reason"] for e in sync_server.journal("push") if e["reason"]]
        assert refused == ["TRUNCATED", "BAD_CHECKSUM", "BAD_CHECKSUM"]
        assert not list((sync_server.directory / "open").glob(".*.part"))


@pytest.mark.parametrize("value", [np.nan, np.inf], ids=str)
def test_push_that_is_not_finite_is_refused_and_the_round_goes_on(sync_server, value):
    with raw_peers(sync_server, "a.0", "b.0") as (a, b):
        opened(sync_server, (a, b))
        b.push(delta([2, 3], 3.0))
        bad = delta([0, 1], 1.0)
        bad[EXPERT_0][1, 1] = value
        reply = a.push(bad)
        assert refusal(reply) == ("REFUSED", "NOT_FINITE")
        assert EXPERT_0 in reply.detail
        b.hear("committed")
        model = b.pull(-1)[1]
        assert np.all(model[SHARED] == 3.0)
        assert np.all(model[EXPERT_0] == 0.0)


def test_nan_loss_is_refused(sync_server):
    with raw_peers(sync_server, "a.0", "b.0") as (a, b):
        opened(sync_server, (a, b))
        assert refusal(a.push(delta([0, 1], 1.0), loss=float("nan"))) == ("REFUSED", "NOT_FINITE")


def test_pickle_is_no_push(sync_server):
    """A payload of anything but the manifest's tensors does not get past its header."""
    with raw_peers(sync_server, "a.0", "b.0") as (a, b):
        opened(sync_server, (a, b))
        values = delta([0, 1], 1.0)
        whole = list(parts(a.header(values, total_bytes=1 << 30), values))
        assert refusal(a.push_parts(whole)) == ("REFUSED", "TOO_LARGE")
        values = delta([2, 3], 1.0)
        unknown = b.header(values)
        unknown.tensors[0].name = "pickle"
        assert refusal(b.push_parts([sync_pb2.PushPart(header=unknown)])) == (
            "REFUSED",
            "WRONG_SHAPE",
        )


def test_experts_of_others_are_dropped_alone(sync_server):
    with raw_peers(sync_server, "a.0", "b.0") as (a, b):
        opened(sync_server, (a, b))
        reply = a.push(delta([0, 1, 2], 1.0))
        assert refusal(reply) == ("PARTLY", "OLD_EPOCH")
        assert list(reply.dropped_experts) == [2]
        b.push(delta([2, 3], 3.0))
        b.hear("committed")
        model = b.pull(-1)[1]
        assert np.all(model["layers.0.experts.2.w1"] == 3.0)
        assert np.all(model[SHARED] == 2.0)


def test_push_on_an_old_base_is_rebase_and_counts_nowhere(sync_server):
    with raw_peers(sync_server, "a.0") as (a,):
        opened(sync_server, (a,), {0: "a.0"})
        values = delta([0], 1.0)
        a.push(values)
        a.hear("round_open")
        assert refusal(a.push(values, base_version=0, round=1)) == ("REBASE", "OLD_BASE")
        assert np.all(a.pull(-1)[1][SHARED] == 1.0)


# Who counts (oracle Q-12).


def test_mean_is_over_those_that_arrived(tmp_path):
    clock = SkippingClock()
    with (
        running_server(tmp_path / "sync", clock=clock) as server,
        raw_peers(server, "a.0", "b.0", "c.0") as peers,
    ):
        opened(server, peers, {0: "a.0", 1: "b.0", 2: "c.0"})
        peers[0].push(delta([0], 1.0))
        peers[1].push(delta([1], 3.0), steps=1, tokens=16)
        clock.skip(60)
        peers[0].hear("committed")
        assert np.all(peers[0].pull(-1)[1][SHARED] == 2.0)
        missing = [e for e in server.journal("left") if e["round"] == 1]
        assert [e["peer"] for e in missing] == ["c.0"]
        assert server.hub.state().global_tokens == 48


def test_nobody_pushing_leaves_model_and_version_as_they_were(tmp_path):
    clock = SkippingClock()
    with (
        running_server(tmp_path / "sync", clock=clock) as server,
        raw_peers(server, "a.0") as (a,),
    ):
        opened(server, (a,), {0: "a.0"})
        clock.skip(25)
        eventually(lambda: server.journal("givenUp"), "round given up")
        assert server.hub.state().version == 0
        assert np.all(a.pull(-1)[1][SHARED] == 0.0)


def test_tokens_weigh_when_asked_to(tmp_path):
    with running_server(tmp_path / "sync") as server:
        server.hub.settings_json = job_settings(algorithm__weights="Tokens")
        with raw_peers(server, "a.0", "b.0") as (a, b):
            opened(server, (a, b))
            a.push(delta([0, 1], 1.0), steps=1, tokens=8)
            b.push(delta([2, 3], 3.0), steps=2, tokens=24)
            a.hear("committed")
            assert np.all(a.pull(-1)[1][SHARED] == 2.5)
            weights = {p["peer"]: p["weight"] for p in server.journal("committed")[0]["peers"]}
            assert weights == {"a.0": 0.25, "b.0": 0.75}


def test_held_round_is_reopened_by_a_plan(tmp_path):
    clock = SkippingClock()
    with running_server(tmp_path / "sync", clock=clock) as server:
        server.hub.settings_json = job_settings(
            sync__quorum=1.0, sync__timeoutSeconds=5, reassignment__unreachableAfterSeconds=20
        )
        with raw_peers(server, "a.0", "b.0") as (a, b):
            opened(server, (a, b))
            a.push(delta([0, 1], 1.0))
            clock.skip(6)
            eventually(lambda: "missing: b.0" in server.hub.state().problem, "held")
            server.hub.apply(dict.fromkeys(range(4), "a.0"))
            a.hear("committed")
            model = a.pull(-1)[1]
            assert np.all(model[SHARED] == 1.0)
            assert np.all(model[EXPERT_0] == 1.0)
            assert b.hear("plan").epoch == 2


def test_silent_peer_does_not_hold_the_round(tmp_path):
    clock = SkippingClock()
    with (
        running_server(tmp_path / "sync", clock=clock) as server,
        raw_peers(server, "a.0", "b.0") as (a, b),
    ):
        opened(server, (a, b))
        b.disconnect()
        clock.skip(19)
        a.push(delta([0, 1], 1.0))
        clock.skip(2)
        a.hear("committed")
        assert [e["reason"] for e in server.journal("left")] == ["silent"]
