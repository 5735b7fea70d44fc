"""`summary.json`, field by field, against a golden file. Rewrite it with WRITE_GOLDEN=1."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from builders.finished_run import write_run
from spes_operator.report.record import load_record
from spes_operator.report.summary import installed_versions, summarise

GOLDEN = Path(__file__).parents[2] / "golden" / "summary.json"
VERSIONS = {"python": "3.11.0", "spes": "0.1.0"}


def test_summary_is_the_golden_one(tmp_path):
    summary = summarise(load_record(write_run(tmp_path / "run", rounds=14)), VERSIONS)
    if os.environ.get("WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps(summary, indent=2) + "\n")
    expected = json.loads(GOLDEN.read_text())
    losses = summary.pop("heldOutLoss"), expected.pop("heldOutLoss")
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    assert summary == expected


def test_summary_of_a_run_without_rounds_has_nulls(tmp_path):
    run_dir = write_run(tmp_path / "run", rounds=3)
    (run_dir / "sync" / "journal.jsonl").write_text("")
    summary = summarise(load_record(run_dir), VERSIONS)
    assert (summary["rounds"], summary["modelSha256"]) == (0, None)
    assert summary["heldOutLoss"]["last"] is None


def test_export_is_named_once_it_is_there(tmp_path):
    run_dir = write_run(tmp_path / "run", rounds=3)
    (run_dir / "export").mkdir()
    assert summarise(load_record(run_dir), VERSIONS)["export"] is None
    (run_dir / "export" / "model.safetensors").touch()
    assert summarise(load_record(run_dir), VERSIONS)["export"] == "export"


def test_versions_name_python_and_spes():
    assert {"python", "spes"} <= installed_versions().keys()
