"""Which rows a rank holds, and the commands that ranks run."""

from __future__ import annotations

import pytest
import torch
from builders.nano import nano_spec
from hypothesis import given
from hypothesis import strategies as st
from spes_trainer.assembly import require_work_for_all
from spes_trainer.commands import (
    Discard,
    Evaluate,
    LoadFirstWeights,
    Read,
    ReadMoments,
    Resume,
    Save,
    Step,
    Train,
    Write,
    decode,
    encode,
)
from spes_trainer.errors import ConfigError
from spes_trainer.rows import copy_rows, held_rows, local_rows


@given(num_rows=st.integers(0, 40), size=st.integers(1, 9))
def test_every_row_is_held_once_and_in_order(num_rows, size):
    held = [row for rank in range(size) for row in range(num_rows)[held_rows(num_rows, rank, size)]]
    assert held == list(range(num_rows))


@given(num_rows=st.integers(1, 40), size=st.integers(1, 9))
def test_rows_are_held_as_fsdp_lays_them_out(num_rows, size):
    chunks = torch.arange(num_rows).chunk(size)
    for rank, chunk in enumerate(chunks):
        assert range(num_rows)[held_rows(num_rows, rank, size)] == range(
            int(chunk[0]), int(chunk[-1]) + 1
        )


def test_a_plain_tensor_is_held_whole():
    tensor = torch.zeros(3, 2)
    assert local_rows(tensor) is tensor
    copy_rows(tensor, torch.ones(3, 2))
    assert tensor.sum() == 6


COMMANDS = (
    Read(name="norm.weight"),
    Write(name="norm.weight"),
    Train(experts=[0, 2], ramp=True, steps={"layers.0.experts.2.w1": 3.0}),
    Step(shape=[4, 16], rate=0.01, ramp=False),
    Evaluate(shape=[4, 16]),
    ReadMoments(expert=2),
    LoadFirstWeights(),
    Save(name="round-000001", state={"job": "uid"}),
    Resume(name="round-000001", owned=[1]),
    Discard(name=None),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_a_command_is_one_line_and_arrives_as_it_was(command):
    line = encode(command)
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert decode(line) == command


def test_each_process_needs_a_sequence_of_every_micro_batch():
    spec = nano_spec(microBatchTokens=32)
    require_work_for_all(spec, 2)
    with pytest.raises(ConfigError, match=r"microBatchTokens must be at least 48.*\(got 32\)"):
        require_work_for_all(spec, 3)
