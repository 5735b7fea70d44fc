"""Whole `spes run`s as processes, over a model so small that most time goes into starting them."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

# A machine that is busy with other tests takes a minute to start a few trainers.
DEADLINE_SECONDS = 240.0
# Committed tokens of one peer in one round.
ROUND_TOKENS = 256
# So many that an event is acted upon before the last, however fast rounds are.
MANY_ROUNDS = 60
# Room for every expert of the tiny model.
SLOT = {"memory": "48Mi", "activation": "1Mi"}


def make_job(*, rounds: int, peers: int, **members: int) -> dict[str, Any]:
    """A SpesJob that `peers` finish in so many rounds."""
    model = {
        "width": 32,
        "numLayers": 1,
        "numHeads": 2,
        "expertWidth": 32,
        "numExperts": 4,
        "numExpertsPerToken": 2,
        "vocabulary": 256,
        "initStd": 0.06,
    }
    training = {
        "maxTokens": rounds * peers * ROUND_TOKENS,
        "batchTokens": ROUND_TOKENS // 4,
        "optimizer": {"learningRate": 0.01},
        "precision": "FP32",
        "evaluation": {"everyRounds": 1, "tokens": 512},
    }
    spec = {
        "model": {"config": model},
        "data": {"sources": [{"dataset": {"name": "words"}}], "sequenceTokens": 32},
        "training": training,
        "members": members or {"min": peers},
        "sync": {"everySteps": 4, "timeoutSeconds": 60},
        "reassignment": {
            "unreachableAfterSeconds": 4,
            "reassignAfterSeconds": 8,
            "cooldownAfterHubRestartSeconds": 1,
        },
        "trainer": {"gracePeriodSeconds": 10},
    }
    return {
        "apiVersion": "spes.dev/v1alpha1",
        "kind": "SpesJob",
        "metadata": {"name": "tiny", "namespace": "research"},
        "spec": spec,
    }


@dataclass(frozen=True, slots=True)
class Folder:
    """Where a test keeps its runs."""

    root: Path

    def write(self, job: dict[str, Any], *members: str) -> None:
        """Write the job, the members, and words to train on."""
        (self.root / "job.yaml").write_text(yaml.safe_dump(job))
        slots = [{"name": name, "slots": [dict(SLOT)]} for name in members]
        (self.root / "members.yaml").write_text(yaml.safe_dump({"members": slots}))
        words = self.root / "words"
        words.mkdir()
        chance = random.Random(0)
        for number in range(40):
            text = " ".join(chance.choice(["round", "expert", "peer"]) for _ in range(150))
            (words / f"{number}.txt").write_text(text)

    @contextmanager
    def start(self, name: str, *events: str) -> Iterator["Run"]:
        """A new run in the folder `name`."""
        told = [option for event in events for option in ("--event", event)]
        with self._spes(
            name,
            *("job.yaml", "--members", "members.yaml", "--dataset", "words=words"),
            *("--output", name, *told),
        ) as run:
            yield run

    @contextmanager
    def resume(self, name: str) -> Iterator["Run"]:
        """Go on with the run in the folder `name`."""
        with self._spes(name, "--resume", name) as run:
            yield run

    @contextmanager
    def _spes(self, name: str, *arguments: str) -> Iterator["Run"]:
        command = [sys.executable, "-m", "spes_operator.cli", "run", "--plain", *arguments]
        with (self.root / "output").open("ab") as output:
            process = subprocess.Popen(
                command, cwd=self.root, stdout=output, stderr=output, start_new_session=True
            )
        try:
            yield Run(process, self.root / name, self.root / "output")
        finally:
            process.kill()
            process.wait()


@dataclass(frozen=True, slots=True)
class Run:
    """One `spes run` process and its folder."""

    process: subprocess.Popen[bytes]
    directory: Path
    output: Path

    def finish(self) -> int:
        """Wait for its end; the exit code. No process may be left then."""
        code = self.exit_code()
        assert self.processes() == [], self.output.read_text()
        return code

    def exit_code(self) -> int:
        """Wait for its end."""
        return self.process.wait(DEADLINE_SECONDS)

    def kill(self) -> None:
        """SIGKILL to `spes run` itself; returns once nothing of the run is left."""
        self.process.kill()
        self.process.wait()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.processes():
            assert time.monotonic() < deadline, f"left behind: {self.processes()}"
            time.sleep(0.05)

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def processes(self) -> list[int]:
        """Processes that the run started and that are still there."""
        return [pid for pid in map(int, _numbers()) if str(self.directory) in _command_line(pid)]

    def until_round(self, number: int) -> None:
        """Wait until so many rounds are committed."""
        self.until(lambda: len(self.journal("committed")) >= number)

    def until(self, holds: Callable[[], bool]) -> None:
        """Poll with a deadline; fail at once if the run has ended."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not holds():
            assert self.process.poll() is None, self.output.read_text()
            assert time.monotonic() < deadline, self.output.read_text()
            time.sleep(0.05)

    def journal(self, event: str) -> list[dict[str, Any]]:
        """Lines of the sync server's journal about `event`."""
        path = self.directory / "sync" / "journal.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [entry for entry in map(json.loads, lines) if entry["event"] == event]

    @property
    def summary(self) -> dict[str, Any]:
        """What the run left in summary.json."""
        found: dict[str, Any] = json.loads((self.directory / "summary.json").read_bytes())
        return found

    def owners(self) -> dict[int, dict[str, str]]:
        """Round -> peer -> its experts."""
        return {entry["round"]: entry["owners"] for entry in self.journal("opened")}


def _numbers() -> list[str]:
    return [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _command_line(pid: int) -> str:
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes().decode("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
