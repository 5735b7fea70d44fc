"""Makes one run after another, each with `spes run`, and keeps what it left as JSON."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from bench.science.design import Arm, job_of, members_of
from bench.science.resident import peak_bytes_of_peers
from bench.science.trials import Measured, Trial, read_trial

REPOSITORY = Path(__file__).parents[3]
# Longest that a run may take, however busy the machine.
LIMIT_SECONDS = 3600
# From one look at the trainers' memory to the next.
LOOK_SECONDS = 0.5
STOP_SECONDS = 180
# Written once training is done; and how `spes run` may end then.
_TRAINED, _ENDED = "baselines.json", (0, 130)
_LOG_END = 1500


class RunFailedError(Exception):
    """`spes run` failed or took too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One run to make."""

    arm: Arm
    seed: int
    num_steps: int
    learning_rate: float
    kept_at: Path
    """JSON; a run whose file exists is not made again."""


def make(request: Request, scratch: Path) -> bool:
    """Make the run if its file is not there; returns whether it was made.

    Raises:
        RunFailedError: it failed; its folder is left in `scratch`.
    """
    if request.kept_at.exists():
        return False
    job = job_of(
        request.arm,
        seed=request.seed,
        num_steps=request.num_steps,
        learning_rate=request.learning_rate,
    )
    folder = scratch / request.kept_at.stem
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    commit = _git("rev-parse", "HEAD")
    started = _cpu_seconds()
    peaks = _spes_run(job, members_of(request.arm), folder)
    measured = Measured(commit=commit, cpu_seconds=_cpu_seconds() - started, peak_bytes=peaks)
    trial = read_trial(request.arm.name, job, folder / "run", measured)
    _keep(trial, request.kept_at)
    shutil.rmtree(folder)
    return True


def _spes_run(job: Mapping[str, Any], members: Mapping[str, Any], folder: Path) -> dict[str, int]:
    """Run until the model is trained and saved; returns the highest memory of each peer.

    What `spes run` does then for people, a sample of the model's text, is interrupted.
    """
    job_file, members_file, log = (folder / name for name in ("job.yaml", "members.yaml", "log"))
    job_file.write_text(yaml.safe_dump(job, sort_keys=False), encoding="utf-8")
    members_file.write_text(yaml.safe_dump(members, sort_keys=False), encoding="utf-8")
    command = [sys.executable, "-m", "spes_operator.cli", "run", str(job_file), "--plain"]
    command += ["--members", str(members_file), "--output", str(folder / "run")]
    peaks: dict[str, int] = {}
    deadline = time.monotonic() + LIMIT_SECONDS
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        while process.poll() is None and time.monotonic() < deadline:
            if (folder / "run" / _TRAINED).exists():
                break
            peaks.update(peak_bytes_of_peers(process.pid))
            time.sleep(LOOK_SECONDS)
    finally:
        if process.poll() is None:  # trained, or too long, or this program is told to stop
            process.terminate()
            process.wait(STOP_SECONDS)
    if process.returncode not in _ENDED or not (folder / "run" / _TRAINED).exists():
        end = log.read_text(encoding="utf-8", errors="replace")[-_LOG_END:]
        raise RunFailedError(
            f"spes run ended with {process.returncode} and without a trained model (expected one); "
            f"its folder is {folder}\n{end}"
        )
    return peaks


def _keep(trial: Trial, path: Path) -> None:
    """Whole or not at all: a file that exists means that the run needs not be made again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.write_text(trial.to_json(), encoding="utf-8")
    draft.replace(path)


def _cpu_seconds() -> float:
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _git(*arguments: str) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    command = ["git", "-C", str(REPOSITORY), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout.strip()
