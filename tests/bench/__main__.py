"""All figures: run each benchmark, print one table, write docs/benchmarks.md from the raw results.

    nice python tests/bench [--only NAME ...] [--page]

Each benchmark is a program of its own, measures its sides in one run and keeps what it measured in
tests/bench/results/. `--page` writes table and page from what is kept, `--only` runs some of them
again. The exit code is 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

# A program finds the packages below tests/ too.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.page import page
from bench.targets import figures, table

HERE = Path(__file__).parent
BENCHMARKS = ("sync_round", "merge", "codec", "peer", "placement")
LIMIT_SECONDS = 1200
PAGE = HERE.parents[1] / "docs" / "benchmarks.md"


def run(name: str) -> None:
    """One benchmark, on one thread a process."""
    started = time.monotonic()
    subprocess.run(
        [sys.executable, str(HERE / f"{name}.py")],
        check=True,
        timeout=LIMIT_SECONDS,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    sys.stderr.write(f"{name}: {time.monotonic() - started:.0f} s\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=BENCHMARKS)
    parser.add_argument("--page", action="store_true", help="run nothing")
    options = parser.parse_args()
    for name in () if options.page else options.only:
        run(name)
    found = figures()
    sys.stdout.write(table(found))
    PAGE.write_text(page(found))
    sys.stdout.write(f"written to {PAGE}\n")
    return any(figure.missed for figure in found)


if __name__ == "__main__":
    sys.exit(main())
