"""A killed run goes on as if it had never stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders.crash_sweep import ATTEMPTS

pytestmark = pytest.mark.timeout(330)
TESTS = Path(__file__).parents[2]


def test_a_kill_at_any_moment_of_a_save_changes_no_bit(tmp_path):
    """Weights, moments, random state and position are those of a run without a kill."""
    done = subprocess.run(
        [sys.executable, "-m", "builders.crash_sweep", str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stderr
    hits = [line for line in done.stdout.splitlines() if line.startswith("hit ")]
    assert hits == [f"hit {point}:{count} equal" for point, count in ATTEMPTS]
