"""Files that a program of hack/ writes from their sources."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def check_generated(program: str) -> None:
    """Fail, and say which, if a file differs from what the program would write."""
    ran = subprocess.run(
        [sys.executable, str(ROOT / program), "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
