"""The ranks of a peer over `torch.distributed`: gloo between CPUs, NCCL between GPUs.

All ranks are on one machine. They meet in a file, not at a port, so nothing listens for strangers.
Runs with NCCL are not part of the tests: these use gloo.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from spes_trainer.errors import config_error
from spes_trainer.rows import held_rows

# Far above what a rank may be behind the others: it has a checkpoint to write, or data to wait for.
COLLECTIVE_TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRanks:
    """Implements `ranks.Ranks`. What is small or meant for rank 0 alone travels in host memory."""

    rank: int
    size: int

    def count(self, number: int) -> int:
        """Sum over the ranks."""
        return int(self.total(torch.tensor(number)).item())

    def total(self, tensor: Tensor) -> Tensor:
        """Sum over the ranks, in place."""
        dist.all_reduce(tensor)
        return tensor

    def norm(self, mine: Tensor) -> Tensor:
        """The root of the sum of squares."""
        return self.total(mine.square()).sqrt()

    def share(self, tensor: Tensor) -> None:
        """Broadcast from rank 0."""
        dist.broadcast(tensor, src=0)

    def collect(self, rows: Tensor, num_rows: int) -> Tensor:
        """Receive every rank's rows into one tensor."""
        rows = rows.cpu().contiguous()
        if self.rank:
            if len(rows):
                dist.send(rows, dst=0)
            return rows[:0]
        whole = torch.empty((num_rows, *rows.shape[1:]), dtype=rows.dtype)
        whole[: len(rows)] = rows
        for rank in range(1, self.size):
            part = whole[held_rows(num_rows, rank, self.size)]
            if len(part):
                dist.recv(part, src=rank)
        return whole

    def spread(self, whole: Tensor | None, into: Tensor, num_rows: int) -> None:
        """Send every rank its rows."""
        if whole is None:
            if len(into):
                rows = torch.empty(into.shape, dtype=into.dtype)
                dist.recv(rows, src=0)
                into.copy_(rows)
            return
        whole = whole.to(into.dtype)
        for rank in range(1, self.size):
            part = whole[held_rows(num_rows, rank, self.size)]
            if len(part):
                dist.send(part.contiguous(), dst=rank)
        into.copy_(whole[held_rows(num_rows, 0, self.size)])


@contextmanager
def joined(meeting: Path, *, rank: int, size: int) -> Iterator[ProcessRanks]:
    """Be one of the ranks while the block runs.

    Args:
        meeting: A file that all ranks name, and that no others have used.
        rank: Of this process.
        size: How many there are; each has the GPU of its rank if the machine has any.
    """
    threads = torch.get_num_threads()
    backend = _choose_backend(rank)
    torch.set_num_threads(max(1, threads // size))
    dist.init_process_group(
        backend,
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=size,
        timeout=COLLECTIVE_TIMEOUT,
    )
    try:
        yield ProcessRanks(rank=rank, size=size)
    finally:
        dist.destroy_process_group()
        torch.set_num_threads(threads)


def require_devices(size: int) -> None:
    """Every rank has a GPU of its own, if the machine has any.

    Raises:
        ConfigError: there are fewer than ranks.
    """
    num_devices = torch.cuda.device_count()
    if 0 < num_devices < size:
        raise config_error(
            "spec",
            "trainer.numProcPerNode",
            got=size,
            expected=f"at most {num_devices}, the GPUs that this slot has",
            hint="lower it, or offer larger slots",
        )


def _choose_backend(rank: int) -> str:
    if not torch.cuda.is_available():
        return "gloo"
    torch.cuda.set_device(rank)
    return "cpu:gloo,cuda:nccl"
