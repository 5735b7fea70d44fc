"""`--profile`: torch's profiler imports a compiler, which takes ten seconds."""

from __future__ import annotations

import gzip
import io
import json
import threading

from builders.nano import nano_spec, write_words
from spes_trainer.progress import Lines
from spes_trainer.train import AloneOptions, train_alone


def test_a_profile_holds_a_trace_and_a_table(tmp_path):
    options = AloneOptions(
        directory=tmp_path / "d", data_root=write_words(tmp_path / "data"), profile_steps=2
    )
    out, folder = io.StringIO(), tmp_path / "d/profile"
    train_alone(nano_spec(), options, display=Lines(out), stop=threading.Event())
    assert f"profiled 2 steps: {folder}/operators.txt has the operators" in out.getvalue()
    assert "aten::mm" in (folder / "operators.txt").read_text()
    with gzip.open(folder / "trace.json.gz", "rt") as trace:
        events = json.load(trace)["traceEvents"]
    assert sum(event["name"] == "aten::_fused_adamw_" for event in events) == 2


def test_a_run_that_ends_early_leaves_the_profile_it_has(tmp_path):
    """It ends after its sixteenth step, the thirteenth of a hundred that were wished for."""
    options = AloneOptions(
        directory=tmp_path / "d", data_root=write_words(tmp_path / "data"), profile_steps=100
    )
    out = io.StringIO()
    train_alone(nano_spec(), options, display=Lines(out), stop=threading.Event())
    assert "profiled 13 steps" in out.getvalue()
