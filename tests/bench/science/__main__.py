"""SPES against what it is compared with, on the same tokens; see docs/science.md.

    nice python tests/bench/science [--quick | --pilot] [--page]

Makes every run that is not there yet with `spes run`, then writes the page from their JSON. The
runs lie in docs/science/runs; delete a file to make its run anew. `--quick` makes a few short ones
in a folder of its own and prints the tables; they show that all works, not who is better.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

# A program finds the packages below tests/ too.
sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.science.design import (
    ARMS,
    FULL,
    LEARNING_RATE,
    PILOT,
    PILOT_EVERY_STEPS,
    PILOT_RATES,
    PILOT_SEED,
    PILOT_STEPS,
    QUICK,
    Length,
)
from bench.science.figures import draw
from bench.science.page import write_page, write_tables
from bench.science.results import Results
from bench.science.runs import REPOSITORY, Request, make
from bench.science.trials import Trial

SCIENCE = REPOSITORY / "docs" / "science"
SCRATCH = REPOSITORY / "runs" / "science"
EXIT_TERMINATED = 143


def requests(length: Length, folder: Path) -> Iterator[Request]:
    """Every run of a length, arm by arm."""
    for name in length.arms:
        arm = ARMS[name]
        for seed in arm.seeds or length.seeds:
            yield Request(
                arm=arm,
                seed=seed,
                num_steps=length.num_steps,
                learning_rate=LEARNING_RATE,
                kept_at=folder / f"{name}-{seed}.json",
            )


def pilot_requests(folder: Path) -> Iterator[Request]:
    """One run of the main algorithms at each learning rate."""
    for name in PILOT:
        for rate in PILOT_RATES:
            yield Request(
                arm=replace(ARMS[name], every_steps=PILOT_EVERY_STEPS),
                seed=PILOT_SEED,
                num_steps=PILOT_STEPS,
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


def read_all(folder: Path) -> list[Trial]:
    """Every trial that a folder keeps."""
    return [Trial.from_json(path.read_text()) for path in sorted(folder.glob("*.json"))]


def write_all(science: Path) -> None:
    """The page beside the folder of its figures, from what lies in it."""
    results = Results.of(read_all(science / "runs"))
    for name, figure in draw(results).items():
        (science / name).write_text(figure, encoding="utf-8")
    page = write_page(results, read_all(science / "pilot"))
    science.with_suffix(".md").write_text(page, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true", help="a few short runs, printed; minutes")
    how.add_argument("--pilot", action="store_true", help="only the runs that chose the rate")
    how.add_argument("--page", action="store_true", help="only write the page anew")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))  # ends the run too
    if options.quick:
        make_all(list(requests(QUICK, SCRATCH / "quick")))
        sys.stdout.write(write_tables(Results.of(read_all(SCRATCH / "quick"))))
        return
    if not options.page:
        make_all(list(pilot_requests(SCIENCE / "pilot")))
    if not (options.page or options.pilot):
        make_all(list(requests(FULL, SCIENCE / "runs")))
    if not options.pilot:
        write_all(SCIENCE)


if __name__ == "__main__":
    main()
