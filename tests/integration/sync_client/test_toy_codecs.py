"""Toy peers whose pushes and pulls are coded, against a real server."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest
from builders.sync_server import eventually, running_server
from builders.toy_learner import PSI, ToyLearner, phi, toy_manifest
from builders.toy_peer import (
    CrashError,
    Gate,
    ToyPeer,
    seeded_peers,
    served,
    toy_settings,
    version_of,
)
from safetensors.numpy import load_file

A, B = "uni-a.0", "uni-b.0"
# Two blocks, the second one short; of very different numbers, so that INT8 drops much.
SIZE = 5000
MANIFEST = toy_manifest(num_experts=2, size=SIZE)
ROUNDS = 4
CODECS = pytest.mark.parametrize("codec", ["BF16", "INT8", "UINT8"])


def spread(learner: ToyLearner) -> None:
    """Let every number have a target of its own."""
    factors = np.exp(np.random.default_rng(0).normal(scale=2, size=SIZE)).astype(np.float32)
    learner.a, learner.b = learner.a * factors, learner.b * factors


def settings(codec: str, *, up: str = "", down: str = "", entropy: str = "None") -> str:
    compression = {"uplink": up or codec, "downlink": down or codec, "entropy": entropy}
    return toy_settings(rounds=ROUNDS, sync__compression=compression)


def toys(server):
    return seeded_peers(server, A, B, manifest=MANIFEST, adjust=spread)


def complete(peers: list[ToyPeer]) -> None:
    assert [peer.wait().reason for peer in peers] == ["COMPLETE"] * len(peers)


def final_hash(server) -> str:
    return server.journal("committed")[-1]["modelSha256"]


def run(directory, settings_json: str) -> tuple[str, dict[str, np.ndarray]]:
    """An undisturbed run: its hash and model, after checking that all peers hold just that."""
    with running_server(directory) as server:
        server.hub.settings_json = settings_json
        with toys(server) as peers:
            server.hub.apply({0: A, 1: B})
            complete(peers)
            model = served(server, ROUNDS)
            for peer in peers:
                check_last_checkpoint(peer, server)
        return final_hash(server), model


def check_last_checkpoint(peer: ToyPeer, server) -> None:
    """What the peer held of the last version that it came to is that version, bit for bit.

    A peer that hears Stop before it has pulled the very last one came to the one before.
    """
    point, values = peer.volume.checkpoints[-1]
    assert point.version in (ROUNDS, ROUNDS - 1)
    model = served(server, point.version)
    assert {n: v.tobytes() for n, v in values.items()} == {n: v.tobytes() for n, v in model.items()}


@pytest.mark.parametrize(
    "link",
    [
        {"codec": "BF16"},
        {"codec": "INT8"},
        {"codec": "INT8", "down": "FP32"},
        {"codec": "FP32", "down": "INT8"},
        {"codec": "UINT8", "entropy": "Huffman"},
        {"codec": "INT16Paper", "down": "UINT8", "entropy": "Huffman"},
    ],
    ids=["BF16", "INT8", "INT8 up", "INT8 down", "UINT8", "INT16 up, UINT8 down"],
)
def test_coded_runs_end_close_to_the_plain_one_and_equal_on_all_peers(tmp_path, link, caplog):
    _, exact = run(tmp_path / "plain", settings("FP32"))
    _, model = run(tmp_path / "coded", settings(**link))
    assert "progress is dropped" not in caplog.text
    assert not np.array_equal(model[PSI], exact[PSI])
    for name, value in exact.items():
        scale = np.abs(value).max()
        assert np.abs(model[name] - value).max() < scale / 100, name


def test_experts_go_down_as_their_owners_sent_them(tmp_path):
    with running_server(tmp_path / "sync") as server:
        server.hub.settings_json = settings("FP32", up="INT8")
        with toys(server) as peers:
            server.hub.apply({0: A, 1: B})
            complete(peers)
        [committed, *_] = server.journal("committed")
        pushed = server.journal("push")[-1]
        metrics = server.scrape()
        frame = load_file(server.directory / "versions" / "000004" / "delta.safetensors")
        pushes = {row["peer"]: row["bytes"] for row in server.journal("push")}
    assert 0.001 < pushed["codecError"] < 0.1
    assert committed["codecError"] == 0  # the server itself codes nothing
    assert committed["compression"] > 1
    for name in ("spes_sync_push_compression", "spes_sync_push_codec_error"):
        assert f'{name}{{peer="{A}"}}' in metrics
    assert "spes_sync_frame_compression" in metrics
    coded = SIZE + 2 * 4  # one byte a number and a scale a block
    assert {name: value.nbytes for name, value in frame.items()} == {
        PSI: 4 * SIZE,
        phi(0): coded,
        phi(1): coded,
    }
    assert pushes == {A: 2 * coded, B: 2 * coded}


def test_huffman_codes_change_no_bit_and_fewer_bytes_travel(tmp_path):
    traffic = {}
    for entropy in ("None", "Huffman"):
        directory = tmp_path / entropy
        with running_server(directory) as server:
            server.hub.settings_json = settings("UINT8", entropy=entropy)
            with toys(server) as peers:
                server.hub.apply({0: A, 1: B})
                complete(peers)
            peers_up = [row["bytesUp"] for row in server.journal("committed")[-1]["peers"]]
            traffic[entropy] = final_hash(server), sum(peers_up), server.scrape()
    plain, coded = traffic["None"], traffic["Huffman"]
    assert coded[0] == plain[0]
    assert coded[1] < 0.95 * plain[1]
    ratios = [
        float(line.split()[-1])
        for line in coded[2].splitlines()
        if line.startswith("spes_sync_push_compression{")
    ]
    assert min(ratios) > 4  # four bytes to one, and then some


@pytest.mark.parametrize(
    ("interval", "codec"),
    [({}, "UINT8"), ({"sync__everySeconds": 500, "sync__timeoutSeconds": 1000}, "FP32")],
    ids=["no time to send", "all the time"],
)
def test_the_precision_of_a_link_is_learnt_from_the_first_push(tmp_path, interval, codec):
    """Rounds of a moment leave no time for an upload, rounds of minutes leave a lot."""
    manifest = toy_manifest(num_experts=2, size=300_000)
    compression = {"uplink": "Auto", "downlink": "FP32"}
    with running_server(tmp_path / "sync") as server:
        server.hub.settings_json = toy_settings(
            rounds=ROUNDS, sync__compression=compression, **interval
        )
        with seeded_peers(server, A, B, manifest=manifest) as peers:
            server.hub.apply({0: A, 1: B})
            complete(peers)
            for peer in peers:
                check_last_checkpoint(peer, server)
        metrics = server.scrape()
        pushes = [row for row in server.journal("push") if row["part"] == "ALL" and row["round"]]
    chosen = [row["codec"] for row in pushes if row["peer"] == A]
    assert chosen == ["BF16"] + [codec] * (ROUNDS - 1)
    assert f'spes_sync_push_codec{{codec="{codec}",peer="{A}"}} 1.0' in metrics


@CODECS
def test_a_server_restart_in_a_round_changes_no_bit(tmp_path, codec):
    undisturbed, _ = run(tmp_path / "whole", settings(codec))
    gate, directory = Gate(), tmp_path / "cut"
    with ExitStack() as first_life:
        server = first_life.enter_context(running_server(directory))
        server.hub.settings_json = settings(codec)
        with toys(server) as peers:
            peers[1].before_step = gate
            gate.open(2)
            server.hub.apply({0: A, 1: B})
            gate.wait_until_reached(3)
            eventually(lambda: list(server.hub.state().pushed) == [A], "A has pushed")
            first_life.close()
            with running_server(directory, tls=server.tls, port=server.ports.port) as again:
                gate.open()
                complete(peers)
                assert final_hash(again) == undisturbed


def kill(peer: ToyPeer) -> None:
    """Kill the process while it waits for its push to be committed."""
    peer.stop.is_set = _killed  # type: ignore[method-assign]
    eventually(lambda: isinstance(peer.error, CrashError), f"{peer.name} is killed")


def _killed() -> bool:
    raise CrashError


@CODECS
def test_a_peer_killed_with_its_push_in_flight_goes_on_with_the_right_residual(tmp_path, codec):
    undisturbed, _ = run(tmp_path / "whole", settings(codec))
    gate = Gate()
    with running_server(tmp_path / "cut") as server:
        server.hub.settings_json = settings(codec)
        with toys(server) as peers:
            a, b = peers
            b.before_step = gate
            gate.open(1)
            server.hub.apply({0: A, 1: B})
            gate.wait_until_reached(2)
            eventually(lambda: list(server.hub.state().pushed) == [A], "A has pushed")
            kill(a)
            gate.open(2)
            eventually(lambda: version_of(server) == 2, "version 2, with A's push")
            assert list((a.directory / "residuals" / "1").glob("000001-ALL-*"))
            a.start()
            gate.open()
            complete(peers)
        assert final_hash(server) == undisturbed
