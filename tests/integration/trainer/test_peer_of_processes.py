"""`spes-trainer train --peer` with two processes against a real sync server over loopback TLS."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from builders.closeness import assert_close
from builders.nano import nano_spec, write_words
from builders.plain_loop import plain_loop
from builders.processes import runs
from builders.rank_runs import START_SECONDS
from builders.sync_server import TestServer, eventually, running_server
from safetensors.torch import load_file

pytestmark = pytest.mark.timeout(2 * START_SECONDS)
PEER = "uni-a.0"
COMMAND = "from spes_trainer.cli import main; main()"


def spec_of_two(**training):
    spec = nano_spec(**training)
    trainer = spec.trainer.model_copy(update={"num_proc_per_node": 2})
    return spec.model_copy(update={"trainer": trainer})


@contextmanager
def running_peer(root: Path, server: TestServer, *more: str) -> Iterator[subprocess.Popen[str]]:
    """The command as a pod has it; killed at the end if it still runs."""
    arguments = {
        "--dir": root / PEER,
        "--peer": PEER,
        "--sync": server.address,
        "--ca": server.tls.ca_file,
        "--token-file": root / "token",
        "--data-root": root / "data",
    }
    words = [str(word) for pair in arguments.items() for word in pair]
    with (root / "log").open("a") as log:
        peer = subprocess.Popen(
            [sys.executable, "-c", COMMAND, "train", *words, *more],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stderr=log,
            text=True,
        )
        try:
            yield peer
        finally:
            peer.kill()
            peer.wait()


@contextmanager
def job(root: Path, spec) -> Iterator[TestServer]:
    """A server that has invited the peer, which seeds and owns all experts."""
    write_words(root / "data")
    with running_server(root / "sync") as server:
        server.hub.settings_json = spec.canonical_json()
        (root / "token").write_text(server.hub.invite(PEER))
        server.hub.apply(seed_peer=PEER)
        yield server


def begin(server: TestServer) -> None:
    eventually(
        lambda: any(peer.caught_up for peer in server.hub.state().peers),
        "the peer has caught up with its seed",
        seconds=START_SECONDS,
    )
    server.hub.apply(dict.fromkeys(range(4), PEER))


def children(pid: int) -> list[int]:
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for thread in threads for child in thread.read_text().split()]


def test_a_peer_of_two_processes_equals_the_plain_loop(tmp_path):
    spec = spec_of_two()
    with job(tmp_path, spec) as server, running_peer(tmp_path, server) as peer:
        begin(server)
        (follower,) = children(peer.pid)
        assert peer.wait(START_SECONDS) == 0, (tmp_path / "log").read_text()
        assert not runs(follower)
        final = load_file(server.directory / "versions/000004/model.safetensors")
    assert "training step=1 round=1 loss=" in (tmp_path / "log").read_text()
    written = (tmp_path / PEER / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in written] == list(range(1, 17))
    for name, value in plain_loop(nano_spec(), tmp_path / "data").items():
        assert_close(final[name], value, rtol=1e-5, atol=1e-6)


def test_a_lost_process_ends_the_peer_and_its_replacement_goes_on(tmp_path):
    """The replacement is then told to stop, and hands over what it has."""
    spec = spec_of_two(maxTokens=64 * 4000)
    with job(tmp_path, spec) as server:
        with running_peer(tmp_path, server) as peer:
            begin(server)
            saved = tmp_path / PEER / "latest"
            eventually(
                lambda: server.hub.state().version >= 2 and saved.exists(),
                "two rounds are committed",
                seconds=START_SECONDS,
            )
            (follower,) = children(peer.pid)
            os.kill(follower, signal.SIGKILL)
            assert peer.wait(START_SECONDS) == 1
        assert "a process of this peer has ended" in (tmp_path / "log").read_text()

        reached = server.hub.state().version
        with running_peer(tmp_path, server) as peer:
            eventually(
                lambda: server.hub.state().version > reached + 1,
                "the replacement goes on",
                seconds=START_SECONDS,
            )
            (follower,) = children(peer.pid)
            peer.terminate()
            assert peer.wait(START_SECONDS) == 75
            assert not runs(follower)
        assert "resumed version=" in (tmp_path / "log").read_text()
        assert list((server.directory / "moments").iterdir())


def test_a_killed_peer_leaves_no_process_behind(tmp_path):
    spec = spec_of_two(maxTokens=64 * 4000)
    with job(tmp_path, spec) as server, running_peer(tmp_path, server) as peer:
        begin(server)
        (follower,) = children(peer.pid)
        peer.kill()
        peer.wait(START_SECONDS)
        eventually(lambda: not runs(follower), "it has ended too", seconds=START_SECONDS)
