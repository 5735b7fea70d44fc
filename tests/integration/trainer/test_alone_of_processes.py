"""`spes-trainer train --alone` with two processes: the job's wish is followed here too."""

from __future__ import annotations

import threading

import pytest
from builders.closeness import assert_close
from builders.nano import nano_spec, write_words
from builders.plain_loop import plain_loop
from builders.rank_runs import START_SECONDS
from spes_trainer.errors import ConfigError
from spes_trainer.generate import load_author
from spes_trainer.train import AloneOptions, train_alone

pytestmark = pytest.mark.timeout(2 * START_SECONDS)


class StopAfter:
    """A display that sets `stop` after so many steps."""

    def __init__(self, num_steps: int) -> None:
        self.stop, self.left = threading.Event(), num_steps

    def step(self, *, tokens: int, loss: float) -> None:  # noqa: ARG002 - a Display's
        self.left -= 1
        if self.left == 0:
            self.stop.set()

    def say(self, text: str) -> None:
        """Nobody listens."""


def spec_of(num_processes: int, **training):
    spec = nano_spec(**training)
    trainer = spec.trainer.model_copy(update={"num_proc_per_node": num_processes})
    return spec.model_copy(update={"trainer": trainer})


def test_two_processes_train_what_one_would(tmp_path):
    """The first six steps by two processes, the rest by one, from what those have saved."""
    options = AloneOptions(directory=tmp_path / "d", data_root=write_words(tmp_path / "data"))
    for num_processes, shown in ((2, StopAfter(6)), (1, StopAfter(0))):
        result = train_alone(spec_of(num_processes), options, display=shown, stop=shown.stop)
        assert result.finished is (num_processes == 1)
        assert (options.directory / "checkpoints").is_dir()
    assert result.steps == 16
    trained = dict(load_author(options.directory).model.named_parameters())
    for name, value in plain_loop(nano_spec(), options.data_root).items():
        assert_close(trained[name], value, rtol=1e-5, atol=1e-6)


def test_more_processes_than_sequences_are_refused(tmp_path):
    options = AloneOptions(directory=tmp_path / "d", data_root=write_words(tmp_path / "data"))
    shown = StopAfter(0)
    with pytest.raises(ConfigError, match="numProcPerNode = 5"):
        train_alone(spec_of(5), options, display=shown, stop=shown.stop)
