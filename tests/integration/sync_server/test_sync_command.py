"""`spes-sync` as a process: exit codes, one-line errors, check, export, memory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from builders.raw_peer import delta, raw_peers
from builders.sync_process import ServerProcess
from builders.sync_server import eventually, running_server
from builders.tls import make_tls
from builders.toy_learner import toy_manifest
from builders.toy_peer import ToyPeer, toy_settings
from spes_sync import cli

A, B = "uni-a.0", "uni-b.0"


def spes_sync(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "spes_sync.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.fixture
def process(tmp_path):
    """A server process that is ready."""
    server = ServerProcess(tmp_path / "sync", make_tls(tmp_path / "tls"))
    server.directory.mkdir()
    server.start()
    yield server
    server.reap()


def test_missing_tls_files_are_named(tmp_path):
    done = spes_sync("serve", "--dir", tmp_path)
    assert done.returncode == 2
    assert f"{tmp_path}/tls/tls.crt is missing" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_second_server_names_the_holder_and_a_port_in_use_the_port(process, tmp_path):
    tls = process.tls.directory
    done = spes_sync("serve", "--dir", process.directory, "--tls", tls)
    assert done.returncode == 2
    assert re.search(r"held by another server \(pid \d+ on ", done.stderr)
    port = process.ports.port
    done = spes_sync("serve", "--dir", tmp_path / "other", "--tls", tls, "--port", port)
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr


def test_sigterm_ends_with_exit_code_0(process):
    assert process.end() == 0


def test_check_says_what_is_there_and_finds_a_changed_byte(tmp_path, capsys):
    directory = tmp_path / "sync"
    with running_server(directory) as server, raw_peers(server, "a.0") as (a,):
        server.hub.apply({0: "a.0"})
        a.hear("round_open")
        a.push(delta([0], 1.0))
        a.hear("round_open")
    assert cli.main(["check", str(directory)]) == 0
    said = capsys.readouterr().out
    assert "version 1 (HEAD): ok" in said
    assert "round 2 is open; expected: a.0" in said
    damaged = directory / "versions/000001/delta.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\xff")
    assert cli.main(["check", str(directory)]) == 1
    assert "delta.safetensors is damaged" in capsys.readouterr().out


def test_check_finds_nothing_wrong_with_files_that_are_no_longer_kept(tmp_path, capsys):
    directory = tmp_path / "sync"
    with running_server(directory) as server, raw_peers(server, "a.0") as (a,):
        server.hub.apply({0: "a.0"})
        for version in range(1, 7):
            a.hear("round_open")
            a.push(delta([0], float(version)))
        a.hear("round_open")
    assert cli.main(["check", str(directory)]) == 0
    said = capsys.readouterr().out
    assert "version 6 (HEAD): ok" in said
    assert re.search(r"^\d older versions: ok, without their models$", said, re.MULTILINE)
    (directory / "versions/000005/model.safetensors").unlink()
    assert cli.main(["check", str(directory)]) == 1


@pytest.mark.parametrize("command", [["check"], ["export", "--to", "x"]], ids=lambda c: c[0])
def test_directory_that_is_none_is_said(tmp_path, capsys, command):
    assert cli.main([command[0], str(tmp_path / "no"), *command[1:]]) == 2
    assert "is no directory" in capsys.readouterr().err


def test_export_of_an_empty_volume_is_an_error(tmp_path, capsys):
    assert cli.main(["export", str(tmp_path), "--to", str(tmp_path / "x")]) == 2
    assert "no committed model" in capsys.readouterr().err


def test_memory_stays_flat_over_rounds(process, tmp_path):
    """6 MB of model, 30 rounds: at rest the last five take 10 percent more than 5 to 9 at most.

    A sample may fall into a commit, which needs memory for a moment; the least of five does not.
    """
    resident: dict[int, int] = {}
    with process.hub() as hub:
        hub.settings_json = toy_settings(rounds=31, steps=1)
        peers = []
        for name in (A, B):
            token_file = tmp_path / f"{name}.token"
            token_file.write_text(hub.invite(name))
            peers.append(
                ToyPeer(
                    name=name,
                    directory=tmp_path / name,
                    address=process.address,
                    ca_file=process.tls.ca_file,
                    token_file=token_file,
                    manifest=toy_manifest(2, size=500_000),
                )
            )
        hub.apply(seed_peer=A)
        for peer in peers:
            peer.start()
        eventually(lambda: sum(p.caught_up for p in hub.state().peers) == 2, "caught up")
        hub.apply({0: A, 1: B})

        def sampled() -> bool:
            resident.setdefault(hub.state().version, vm_rss(process.pid))
            return max(resident) >= 30

        eventually(sampled, "30 rounds", seconds=50)
        for peer in peers:
            peer.end()
    early = min(kilobytes for version, kilobytes in resident.items() if 5 <= version < 10)
    late = min(kilobytes for version, kilobytes in resident.items() if version > 25)
    assert late <= 1.1 * early, resident


def vm_rss(pid: int) -> int:
    """Resident memory of a process, kB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1])
