"""What is made, and what the machine is asked meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bench.science.design import ARMS
from bench.science.resident import peak_bytes_of_peers
from bench.science.runs import Request, make

MIB = 1 << 20
# Takes memory, says so, and waits to be told.
CHILD = "held = b'x' * (64 << 20); print('ready', flush=True); input()"


def test_a_run_whose_file_exists_is_not_made_again(tmp_path):
    kept = tmp_path / "spes-0.json"
    kept.write_text("{}")
    request = Request(arm=ARMS["spes"], seed=0, num_steps=40, learning_rate=0.01, kept_at=kept)
    assert not make(request, tmp_path / "scratch")
    assert not (tmp_path / "scratch").exists()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_memory_is_read_of_the_trainers_below_a_process():
    """A grandchild is found by its peer; what names none is passed over."""
    trainer = [sys.executable, "-c", CHILD, "--peer", "uni-a.0"]
    parent = f"import subprocess; raise SystemExit(subprocess.call({trainer!r}))"
    process = subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "ready\n"
        peaks = peak_bytes_of_peers(process.pid)
    finally:
        process.communicate("\n", timeout=30)
    assert list(peaks) == ["uni-a.0"]
    assert 64 * MIB < peaks["uni-a.0"] < 200 * MIB
