"""Training alone: it learns, stops and resumes exactly, and refuses what it must."""

from __future__ import annotations

import io
import itertools
import json
import threading
from dataclasses import replace

import pytest
from builders.nano import nano_spec, write_words
from spes_trainer.errors import VolumeError
from spes_trainer.progress import Lines
from spes_trainer.train import AloneOptions, train_alone


class StopAfter:
    """A display that sets `stop` after so many steps."""

    def __init__(self, num_steps: int) -> None:
        self.stop, self.left, self.said = threading.Event(), num_steps, []

    def step(self, *, tokens: int, loss: float) -> None:  # noqa: ARG002 - a Display's
        self.left -= 1
        if self.left == 0:
            self.stop.set()

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def options(tmp_path) -> AloneOptions:
    directory = tmp_path / "alone"
    directory.mkdir()
    return AloneOptions(directory=directory, data_root=write_words(tmp_path / "data"))


def run(options, spec=None, *, stop_after: int = 0):
    shown = StopAfter(stop_after)
    return train_alone(spec or nano_spec(), options, display=shown, stop=shown.stop), shown


def final_weights(options) -> bytes:
    name = (options.directory / "latest").read_text()
    return (options.directory / "checkpoints" / name / "rank-0.safetensors").read_bytes()


def test_a_run_learns_and_reports(options):
    result, shown = run(options)
    assert result.finished
    assert (result.steps, result.tokens) == (16, 1024)
    assert result.held_out_loss < result.first_loss - 1.5
    assert result.unigram_loss == pytest.approx(3.1, abs=0.3)
    assert shown.said[0].startswith("started: ")
    assert len(shown.said) == 1 + 4


def test_every_step_is_in_the_training_log(options):
    run(options, stop_after=5)
    run(options)
    written = (options.directory / "metrics.jsonl").read_text()
    lines = [json.loads(line) for line in written.splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 17))
    assert [line["round"] for line in lines[:5]] == [1, 1, 1, 1, 2]
    assert {line["globalTokens"] for line in lines} == set(range(64, 1025, 64))
    assert lines[-1]["loss"] < lines[0]["loss"] - 1.5


@pytest.fixture(scope="module")
def weights_of_a_whole_run(tmp_path_factory) -> bytes:
    data_root = write_words(tmp_path_factory.mktemp("data"))
    whole = AloneOptions(directory=tmp_path_factory.mktemp("whole"), data_root=data_root)
    run(whole)
    return final_weights(whole)


@pytest.mark.parametrize("stop_after", [1, 4, 7])
def test_a_stopped_run_resumes_bit_for_bit(options, weights_of_a_whole_run, stop_after):
    first, _ = run(options, stop_after=stop_after)
    assert not first.finished
    assert first.steps == stop_after
    second, shown = run(options)
    assert second.finished
    assert shown.said[0].startswith(f"resumed at {stop_after * 64} tokens")
    assert final_weights(options) == weights_of_a_whole_run


def test_a_finished_run_does_nothing_more(options):
    run(options)
    before = final_weights(options)
    result, shown = run(options)
    assert result.finished
    assert len(shown.said) == 1
    assert final_weights(options) == before


@pytest.mark.parametrize(
    ("changes", "key"), [({"seed": 1}, "seed"), ({"batchTokens": 32}, "batchTokens")], ids=str
)
def test_another_run_is_not_resumed(options, changes, key):
    run(options, stop_after=4)
    with pytest.raises(VolumeError, match=f"of another run: {key} is"):
        run(options, nano_spec(**changes))


def test_changed_data_are_not_resumed(options):
    run(options, stop_after=4)
    (options.data_root / "words" / "0.txt").write_text("something else")
    with pytest.raises(VolumeError, match="data is"):
        run(options)


def test_time_ends_a_round_too(options):
    """The clock gains half a second at each look and is looked at three times a step."""
    spec = nano_spec()
    sync = spec.sync.model_copy(update={"every_steps": None, "every_seconds": 3})
    looks = itertools.count()
    timed = replace(options, clock=lambda: next(looks) / 2)
    _, shown = run(timed, spec.model_copy(update={"sync": sync}))
    ends = [int(line.split()[1]) for line in shown.said[1:]]
    assert ends == [2, 4, 6, 8, 10, 12, 14, 16]


def test_lines_are_written_at_once():
    out = io.StringIO()
    lines = Lines(out)
    lines.step(tokens=1, loss=1.0)
    lines.say("one")
    assert out.getvalue() == "one\n"
