"""What follows a finished run: a sample, and one peer alone for comparison."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest
from builders.programs import make_program
from spes_api.loading import load_job
from spes_operator.local.finale import alone_job, compare_alone, write_sample, write_unigram
from spes_operator.local.machine import Machine, ToolError
from spes_operator.local.rundir import RunDir

JOB = load_job(Path(__file__).parents[3] / "examples" / "moe-tiny.yaml")
COMMITTED = {
    "time": "2026-01-01T00:00:00+00:00",
    "event": "committed",
    "round": 1,
    "version": 1,
    "epoch": 1,
    "seconds": 1.0,
    "globalTokens": 3000,
    "modelSha256": "00",
}
# Stands for a trainer: says its arguments, and finishes a run alone.
TRAINER = """
import json, pathlib, sys
print(*sys.argv[1:], sep="|")
if sys.argv[1] == "train":
    pathlib.Path("summary.json").write_text(json.dumps({"heldOutLoss": {"last": 2.5}}))
"""


def make_run(tmp_path):
    """A folder with a journal in which uni-a.0 trained on 2,000 tokens, uni-b.0 on 1,000."""
    folder = RunDir(tmp_path / "run")
    folder.sync.mkdir(parents=True)
    lines = []
    for version in (1, 2):
        peers = [make_peer("uni-a.0", 1000), make_peer("uni-b.0", 500)]
        lines.append(
            json.dumps({**COMMITTED, "round": version, "version": version, "peers": peers})
        )
    (folder.sync / "journal.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def make_machine(tmp_path, trainer):
    return Machine(environment=make_program(tmp_path, "spes-trainer", trainer))


def make_peer(peer, tokens):
    return {
        "peer": peer,
        "experts": "0-3",
        "weight": 0.5,
        "steps": 1,
        "tokens": tokens,
        "loss": 3.0,
        "tokensPerSecond": 100.0,
        "bytesUp": 1,
        "bytesDown": 1,
        "waitSeconds": 0.1,
    }


def test_the_sample_is_what_the_model_writes(tmp_path):
    folder, machine = make_run(tmp_path), make_machine(tmp_path, TRAINER)
    asyncio.run(write_sample(folder, machine))
    assert folder.sample.read_text() == f"generate|{folder.sync}|--tokens|400\n"


def test_one_peer_alone_gets_the_most_tokens_that_a_peer_had(tmp_path):
    folder, machine = make_run(tmp_path), make_machine(tmp_path, TRAINER)
    asyncio.run(compare_alone(JOB, folder, machine, timedelta(seconds=20), show=print))
    assert load_job(folder.root / "alone.yaml").spec.training.max_tokens == 2000
    found = json.loads((folder.root / "baselines.json").read_text())
    assert found == {"tokens": 2000, "heldOutLoss": 2.5}


def test_it_is_shown_how_far_one_peer_alone_is(tmp_path, monkeypatch):
    """The trainer here goes on once its line has been shown."""
    monkeypatch.setattr("spes_operator.local.finale._LOOK_SECONDS", 0.01)
    source = """
import json, pathlib, time
print("step      5  tokens 320", flush=True)
deadline = time.monotonic() + 20
while not pathlib.Path("seen").exists() and time.monotonic() < deadline:
    time.sleep(0.01)
pathlib.Path("summary.json").write_text(json.dumps({"heldOutLoss": {"last": 2.5}}))
"""
    folder, machine = make_run(tmp_path), make_machine(tmp_path, source)
    shown = []

    def show(sentence):
        shown.append(sentence)
        (folder.root / "alone" / "seen").touch()

    asyncio.run(compare_alone(JOB, folder, machine, timedelta(seconds=20), show=show))
    assert shown == ["one peer alone, 2,000 tokens: step 5 tokens 320"]


def test_the_unigram_loss_is_what_the_peers_counted(tmp_path):
    folder = make_run(tmp_path)
    folder.peer("uni-a.0").mkdir(parents=True)
    (folder.peer("uni-a.0") / "data.json").write_text('{"unigramLoss": 3.3}')
    write_unigram(folder)
    assert json.loads((folder.root / "baselines.json").read_text()) == {"unigramLoss": 3.3}


def test_the_schedule_alone_has_the_same_shape():
    training = alone_job(JOB, 300_000).spec.training
    assert (training.max_tokens, training.warmup_tokens) == (300_000, 20_000)


def test_a_failing_trainer_is_named_with_its_log(tmp_path):
    source = "import sys; sys.exit('no model')"
    folder, machine = make_run(tmp_path), make_machine(tmp_path, source)
    with pytest.raises(ToolError, match=r"spes-trainer ended with 1; log .*generate.log: no model"):
        asyncio.run(write_sample(folder, machine))
    assert not folder.sample.exists()


def test_a_trainer_that_hangs_is_killed(tmp_path):
    source = "import time; time.sleep(60)"
    folder, machine = make_run(tmp_path), make_machine(tmp_path, source)
    with pytest.raises(ToolError, match="took longer than 0 s"):
        asyncio.run(compare_alone(JOB, folder, machine, timedelta(seconds=0.2), show=print))
