"""The files of a training log: complete, bounded, in order after a restart, never in the way."""

from __future__ import annotations

import errno
import json
import logging
import os
import threading

import pytest
from builders.nano import nano_spec
from builders.training_steps import NOON, outcome, place, record
from hypothesis import given
from hypothesis import strategies as st
from spes_sync.disk import Disk
from spes_trainer.metrics.history import History
from spes_trainer.metrics.log import TrainingLog
from spes_trainer.metrics.thinning import WHOLE, kept
from spes_trainer.metrics.window import LINE_SECONDS, PeriodicLine
from spes_trainer.share import Workplace
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


@pytest.fixture
def open_log(tmp_path):
    """Opens logs on one directory, as processes that follow each other do."""
    logs = []

    def open_one(peak=None, spec=None, directory=tmp_path, **changes) -> TrainingLog:
        workplace = Workplace(
            directory=directory, data_root=tmp_path, stop=threading.Event(), **changes
        )
        logs.append(TrainingLog(spec or nano_spec(), workplace, peak=peak, now=lambda: NOON))
        return logs[-1]

    yield open_one
    for log in logs:
        log.close()


def lines(directory) -> list[dict]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def steps(directory) -> list[int]:
    return [line["step"] for line in lines(directory)]


def curves(directory) -> EventAccumulator:
    events = EventAccumulator(str(directory / "tensorboard"))
    events.Reload()
    return events


def test_a_line_has_every_number_of_its_step(open_log, tmp_path):
    open_log(peak=1e9).write(place(3, round=2), outcome(((64, 64, 0, 0),)))
    assert lines(tmp_path) == [
        {
            "time": "2026-01-02T12:00:00.000+00:00",
            "step": 3,
            "round": 2,
            "globalTokens": 192,
            "tokens": 64,
            "seconds": 0.5,
            "loss": 2.5,
            "zLoss": 20.0,
            "loadBalance": 1.25,
            "routerZLoss": 3.0,
            "gradientNorm": 0.75,
            "learningRate": 0.01,
            "tokensPerSecond": 128.0,
            "mfu": pytest.approx(7520256 / 0.5e9, rel=1e-5),
            "peakMemoryBytes": 3 * 2**20,
            "expertUtilisation": 0.5,
            "expertHighestLoad": 2.0,
            "expertLoad": [0.5, 0.5, 0.0, 0.0],
            "deadExperts": ["layers.0.experts.2", "layers.0.experts.3"],
        }
    ]


def test_what_is_not_known_is_absent(open_log, tmp_path):
    open_log().write(place(), outcome(peak_bytes=0))
    (line,) = lines(tmp_path)
    assert not {"mfu", "peakMemoryBytes"} & line.keys()


def test_tensorboard_reads_every_curve(open_log, tmp_path):
    log = open_log()
    for step in (1, 2):
        log.write(place(step), outcome(loss=3.0 - step))
    log.close()
    events = curves(tmp_path)
    found = {(event.step, event.value) for event in events.Scalars("loss/cross_entropy")}
    assert found == {(1, 2.0), (2, 1.0)}
    assert events.Scalars("expert_load/1")[0].value == pytest.approx(34 / 128)
    assert "speed/mfu" not in events.Tags()["scalars"]


def test_steps_that_are_done_again_are_in_it_once(open_log, tmp_path):
    """The first process was killed in the middle of a line, three steps after its checkpoint."""
    first = open_log()
    for step in range(1, 6):
        first.write(place(step), outcome(loss=1.0))
    first.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "lo')
    second = open_log()
    for step in range(3, 5):
        second.write(place(step), outcome(loss=2.0))
    second.close()
    assert [(line["step"], line["loss"]) for line in lines(tmp_path)] == [
        (1, 1.0),
        (2, 1.0),
        (3, 2.0),
        (4, 2.0),
    ]
    shown = curves(tmp_path).Scalars("loss/cross_entropy")
    assert [(event.step, event.value) for event in shown] == [(1, 1), (2, 1), (3, 2), (4, 2)]


def test_a_long_history_is_thinned_when_it_is_opened_and_as_it_grows(tmp_path, monkeypatch):
    monkeypatch.setattr("spes_trainer.metrics.thinning.WHOLE", 4)
    monkeypatch.setattr("spes_trainer.metrics.history.WHOLE", 4)
    history = History(tmp_path, Disk())
    for step in range(1, 22):
        history.add(record(step))
    # Last thinned before step 21: the newest four before it are whole, then every 2nd, 4th, 8th.
    assert steps(tmp_path) == [8, 12, 14, 16, 18, 19, 20, 21]


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_what_is_thinned_out_stays_out(step, later, still_later):
    first, second = step + later, step + later + still_later
    assert kept(step, newest=first) or not kept(step, newest=second)


def test_a_long_run_keeps_a_bounded_number_of_steps():
    newest = 2**20
    left = [step for step in range(newest) if kept(step, newest=newest)]
    assert left[-WHOLE:] == list(range(newest - WHOLE, newest))
    assert len(left) == WHOLE + 8 * WHOLE // 2


def test_training_goes_on_when_the_disk_is_full(open_log, tmp_path, caplog):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "metrics.jsonl").write_text("no step\n")  # so that it must be written anew
    log = open_log(disk=Disk(fsync=full))
    for step in (1, 2):
        assert log.write(place(step), outcome()).place.step == step
    assert [entry.message for entry in caplog.records] == [
        "the training log cannot be written; training goes on without it"
    ]


def test_training_goes_on_when_the_folder_is_gone(open_log, tmp_path, caplog):
    open_log(directory=tmp_path / "gone").write(place(), outcome())
    assert "training goes on" in caplog.text


def test_a_peer_tells_of_its_first_step_and_then_of_all_since(caplog):
    caplog.set_level(logging.INFO)
    now = 100.0
    line = PeriodicLine(clock=lambda: now)
    line.add(record(1))
    line.add(record(2, loss=2.0, mfu=0.5))
    now += LINE_SECONDS
    line.add(record(3, loss=1.0, mfu=0.25, routed=((512, 0, 0, 0),)))
    line.add(record(4))
    line.close()
    line.close()
    first, second, third = (entry.message for entry in caplog.records)
    assert first == (
        "training step=1 round=1 loss=2.5000 tokens_per_second=128 gradient_norm=0.75 "
        "learning_rate=0.01 peak_mib=3 experts_used=1.00 dead_experts=none"
    )
    assert "step=3 round=1 loss=1.5000 tokens_per_second=128 mfu=0.375 " in second
    assert "step=4" in third


def test_a_line_names_few_dead_experts(caplog):
    caplog.set_level(logging.INFO)
    PeriodicLine().add(record(routed=((128, *[0] * 7),), owned=frozenset()))
    assert caplog.messages[0].endswith(
        "dead_experts=layers.0.experts.1,layers.0.experts.2,"
        "layers.0.experts.3,layers.0.experts.4,3 more"
    )
