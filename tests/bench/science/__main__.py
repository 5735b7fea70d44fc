"""SPES against what it is compared with, on the same tokens; see docs/science.md.

    nice python tests/bench/science [--quick | --pilot] [--page]

Makes every run that is not there yet with `spes run`, then writes the page from their JSON. The
runs lie in docs/science/runs; delete a file to make its run anew. `--quick` makes a few short ones
in a folder of its own and prints the tables; they show that all works, not who is better.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

# A program finds the packages below tests/ too.
sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.science.design import (
    ARMS,
    FULL,
    LEARNING_RATE,
    PILOT,
    PILOT_RATES,
    PILOT_SEED,
    QUICK,
    Length,
)
from bench.science.runs import REPOSITORY, Request, make

SCIENCE = REPOSITORY / "docs" / "science"
SCRATCH = REPOSITORY / "runs" / "science"


def requests(length: Length, folder: Path) -> Iterator[Request]:
    """Every run of a length, seed by seed, so that an interrupted batch compares all arms."""
    for seed in length.seeds:
        for name in length.arms:
            arm = ARMS[name]
            if seed in (arm.seeds or length.seeds):
                yield Request(
                    arm=arm,
                    seed=seed,
                    num_steps=length.num_steps,
                    learning_rate=LEARNING_RATE,
                    kept_at=folder / f"{name}-{seed}.json",
                )


def pilot_requests(folder: Path) -> Iterator[Request]:
    """One run of the main algorithms at each learning rate, with a seed that no other run has."""
    for rate in PILOT_RATES:
        for name in PILOT:
            yield Request(
                arm=ARMS[name],
                seed=PILOT_SEED,
                num_steps=FULL.num_steps,
                learning_rate=rate,
                kept_at=folder / f"{name}-{rate}.json",
            )


def make_all(wanted: list[Request]) -> None:
    """One at a time."""
    for number, request in enumerate(wanted, start=1):
        started = time.monotonic()
        made = make(request, SCRATCH)
        how = f"{time.monotonic() - started:.0f} s" if made else "is there"
        sys.stderr.write(f"{number}/{len(wanted)} {request.kept_at.stem}: {how}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true", help="a few short runs; minutes")
    how.add_argument("--pilot", action="store_true", help="only the runs that chose the rate")
    options = parser.parse_args()
    if options.quick:
        make_all(list(requests(QUICK, SCRATCH / "quick")))
        return
    make_all(list(pilot_requests(SCIENCE / "pilot")))
    if not options.pilot:
        make_all(list(requests(FULL, SCIENCE / "runs")))


if __name__ == "__main__":
    main()
