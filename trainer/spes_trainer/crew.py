"""All ranks of a trainer as rank 0 leads them, from their start to their end.

There are `trainer.numProcPerNode` of them, mostly one: then nothing is started and nobody is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from spes_api.job import SpesJobSpec
from torch import Tensor

from spes_trainer.assembly import require_work_for_all
from spes_trainer.commands import NOTHING, Command, Evaluate, Nobody, Others, Step, Tensors
from spes_trainer.data.token_file import Tokens
from spes_trainer.share import Share, Workplace
from spes_trainer.step import StepOutcome

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """Rank 0's share of the model, and the ranks that hold the rest."""

    share: Share
    others: Others

    def run(self, command: Command[Result], given: Tensors = NOTHING) -> Result:
        """Run a command on every rank; what this one gets of it."""
        self.others.tell(command)
        return command.run(self.share, given)

    def step(self, sequences: Tokens, *, rate: float, ramp: bool) -> StepOutcome | None:
        """Make one optimizer step on all ranks; None if told to stop before its end."""
        command = Step(shape=_shape(sequences), rate=rate, ramp=ramp)
        return self.run(command, {"sequences": _indices(sequences)})

    def evaluate(self, sequences: Tokens) -> float:
        """Return the held-out loss, nats per token."""
        command = Evaluate(shape=_shape(sequences))
        return self.run(command, {"sequences": _indices(sequences)})


def _shape(sequences: Tokens) -> tuple[int, int]:
    num_sequences, length = sequences.shape
    return num_sequences, length


def _indices(sequences: Tokens) -> Tensor:
    return torch.from_numpy(sequences.astype(np.int64))


@contextmanager
def others_beside(
    spec: SpesJobSpec, workplace: Workplace, *, document_end: int | None
) -> Iterator[Others]:
    """Start the other ranks, and end them when the block is left.

    Args:
        spec: Of the job.
        workplace: Of this process, rank 0.
        document_end: Of the corpus.

    Raises:
        ConfigError: a micro-batch has fewer sequences than there are ranks, or the machine has
            GPUs, and fewer than ranks.
    """
    num_processes = spec.trainer.num_proc_per_node
    if num_processes == 1:
        yield Nobody()
        return
    from spes_trainer.parallel.team import Call, team  # takes seconds to import

    require_work_for_all(spec, num_processes)
    call = Call(
        settings=spec.canonical_json(),
        directory=str(workplace.directory),
        data_root=str(workplace.data_root),
        document_end=document_end,
        size=num_processes,
    )
    with team(call) as others:
        yield others


@contextmanager
def crew_of(spec: SpesJobSpec, workplace: Workplace, *, document_end: int | None) -> Iterator[Crew]:
    """Build this process's share and lead the others; see `others_beside`."""
    with others_beside(spec, workplace, document_end=document_end) as others:
        share = Share(spec, workplace, document_end=document_end, ranks=others.ranks)
        yield Crew(share=share, others=others)
