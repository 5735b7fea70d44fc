"""The trainer is asked what a run's data hold, before anything is started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from spes_api.loading import load_job
from spes_operator.errors import ConfigError
from spes_operator.local.data_look import TrainersLook
from spes_operator.local.machine import Machine
from spes_operator.local.prepare import Options, prepare

JOB = Path(__file__).parents[3] / "examples" / "moe-tiny.yaml"


@pytest.fixture
def look() -> TrainersLook:
    here = Path(sys.executable).parent
    return TrainersLook(machine=Machine(environment={"PATH": f"{here}:{os.environ['PATH']}"}))


def write(folder: Path, **sizes: int) -> Path:
    folder.mkdir()
    for name, size in sizes.items():
        (folder / name.replace("_", ".")).write_text("x" * size)
    return folder


@pytest.mark.parametrize(
    ("sizes", "complaint"),
    [
        pytest.param({"a_txt": 100}, "must be at least one sequence", id="too little"),
        pytest.param({"a_txt": 9000}, "must be a share that holds at least one", id="one document"),
        pytest.param({"a_txt": 9000, "b_jsonl": 9}, "must be files of one kind", id="two kinds"),
    ],
)
def test_what_is_wrong_with_the_data_is_said_at_once(tmp_path, look, sizes, complaint):
    options = Options(job=JOB, data=write(tmp_path / "texts", **sizes), output=tmp_path / "run")
    with pytest.raises(ConfigError, match=complaint) as caught:
        prepare(options, look)
    assert len(str(caught.value).splitlines()) == 1
    assert "spes-look-" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_good_data_are_no_problem(look):
    assert look(load_job(JOB), {}) == []


def test_large_data_are_not_read_twice(tmp_path, look, monkeypatch):
    monkeypatch.setattr("spes_operator.local.data_look.MAX_BYTES", 0)
    options = Options(job=JOB, data=write(tmp_path / "texts", a_txt=1), output=tmp_path / "run")
    prepare(options, look).lock.release()
