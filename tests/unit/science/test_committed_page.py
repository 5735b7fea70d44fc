"""The page in docs/ is what the data beside it give."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from bench.science.design import (
    ARMS,
    FULL,
    PILOT,
    PILOT_EVERY_STEPS,
    PILOT_RATES,
    PILOT_STEPS,
    job_of,
)
from bench.science.page import write_page
from bench.science.results import Results
from bench.science.trials import Trial

SCIENCE = Path(__file__).parents[3] / "docs" / "science"


def kept(folder: str) -> list[Trial]:
    return [Trial.from_json(path.read_text()) for path in sorted((SCIENCE / folder).glob("*.json"))]


def test_the_committed_page_is_what_its_data_give():
    page = write_page(Results.of(kept("runs")), kept("pilot"))
    assert SCIENCE.with_suffix(".md").read_text() == page


def test_every_run_of_the_design_is_committed_with_its_seeds():
    wanted = {(arm, seed) for arm in FULL.arms for seed in ARMS[arm].seeds or FULL.seeds}
    assert {(trial.arm, trial.seed) for trial in kept("runs")} == wanted
    tried = {(arm, rate) for arm in PILOT for rate in PILOT_RATES}
    assert {(trial.arm, trial.learning_rate) for trial in kept("pilot")} == tried


def test_every_picture_of_the_page_is_there():
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", SCIENCE.with_suffix(".md").read_text())
    assert pictures
    assert [name for name in pictures if not (SCIENCE.parent / name).exists()] == []


@pytest.mark.parametrize(
    ("folder", "num_steps", "changes"),
    [
        ("runs", FULL.num_steps, {}),
        ("pilot", PILOT_STEPS, {"every_steps": PILOT_EVERY_STEPS}),
    ],
    ids=["runs", "pilot"],
)
def test_every_committed_run_is_of_this_design(folder, num_steps, changes):
    for trial in kept(folder):
        arm, rate = replace(ARMS[trial.arm], **changes), trial.learning_rate
        job = job_of(arm, seed=trial.seed, num_steps=num_steps, learning_rate=rate)
        assert trial.spec == job["spec"], (trial.arm, trial.seed)
