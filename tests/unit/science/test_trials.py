"""A run's folder becomes JSON, and JSON a trial."""

from __future__ import annotations

import json

import pytest
from bench.science.design import ARMS, job_of
from bench.science.results import Results
from bench.science.trials import Measured, Trial, read_trial
from builders.trials import trial, trials


def test_a_trial_survives_its_file():
    before = trial("spes", 1, 2.5)
    assert Trial.from_json(before.to_json()) == before


def committed(number: int, *, first_weights: int) -> dict:
    peers = [
        {
            "peer": name,
            "experts": experts,
            "tokens": 10,
            "loss": 2.0,
            "tokensPerSecond": 5.0,
            "bytesUp": 100 + (first_weights if name == "peer-a.0" else 0),
            "bytesDown": 0 if number == 1 else 300,
            "waitSeconds": 0.0,
        }
        for name, experts in (("peer-a.0", "0-3"), ("peer-b.0", "4-7"))
    ]
    return {
        "event": "committed",
        "version": number,
        "round": number,
        "epoch": 1,
        "seconds": 1.0,
        "globalTokens": 20 * number,
        "modelSha256": "ab",
        "peers": peers,
    }


@pytest.fixture
def folder(tmp_path):
    """Of a run of two rounds."""
    events = [
        {"event": "evaluated", "version": 0, "loss": 5.9},
        committed(1, first_weights=1000),
        committed(2, first_weights=0),
        {"event": "evaluated", "version": 2, "loss": 2.123456},
    ]
    lines = [json.dumps({"time": "2026-01-01T00:00:00+00:00", **event}) for event in events]
    (tmp_path / "sync").mkdir()
    (tmp_path / "sync" / "journal.jsonl").write_text("\n".join(lines))
    summary = {"seed": 1, "rounds": 2, "tokens": 40, "versions": {}, "modelSha256": "ab"}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    data = tmp_path / "members" / "peer-a.0" / "data.json"
    data.parent.mkdir(parents=True)
    data.write_text(json.dumps({"fingerprint": "f"}))
    return tmp_path


def read(folder):
    job = job_of(ARMS["spes-n2"], seed=1, num_steps=40, learning_rate=0.01)
    measured = Measured(commit="c", cpu_seconds=1.0, peak_bytes={"peer-a.0": 7})
    return read_trial("spes-n2", job, folder, measured)


def test_the_curve_is_over_tokens_of_the_committed_versions(folder):
    assert read(folder).curve == ((0, 5.9), (40, 2.12346))


def test_bytes_of_a_round_leave_out_the_first_weights(folder):
    assert [(peer.bytes_up, peer.bytes_down) for peer in read(folder).peers] == [(100, 300)] * 2


def test_memory_that_nobody_saw_is_unknown(folder):
    assert [peer.peak_bytes for peer in read(folder).peers] == [7, None]


def test_results_are_grouped_by_arm_in_order_of_seeds():
    found = Results.of([*reversed(trials("spes", 2.0, 2.2)), *trials("fedavg", 2.1, 2.1)])
    assert [each.seed for each in found["spes"].trials] == [0, 1]
    assert found.above("spes", "fedavg").mean == pytest.approx(0.0)
