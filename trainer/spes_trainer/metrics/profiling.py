"""`--profile`: a trace of some steps, and a table of the operators that take most of their time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

FOLDER = "profile"
# Steps before the first that is recorded: allocators fill, kernels are chosen.
WARM_UP_STEPS = 3
# Rows of the table.
_OPERATORS = 30


class Profiling:
    """Records steps of this process; of a peer of several that is rank 0."""

    def __init__(self, directory: Path, num_steps: int, say: Callable[[str], None]) -> None:
        """Record nothing yet.

        Args:
            directory: The trainer's own.
            num_steps: How many; 0 for none.
            say: Told where the files are.
        """
        self._folder = directory / FOLDER
        self._num_steps = num_steps
        self._say = say
        self._done = 0
        self._profile: profile | None = None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Surround one optimizer step."""
        if self._num_steps and self._done == WARM_UP_STEPS:
            self._profile = profile(activities=_activities())
            self._profile.start()
        yield
        self._done += 1
        if self._done == WARM_UP_STEPS + self._num_steps:
            self.close()

    def close(self) -> None:
        """Write what was recorded, if that did not happen yet."""
        if self._profile is None:
            return
        recorded, self._profile = self._profile, None
        recorded.stop()
        self._folder.mkdir(exist_ok=True)
        trace, table = self._folder / "trace.json.gz", self._folder / "operators.txt"
        recorded.export_chrome_trace(str(trace))
        order = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        table.write_text(recorded.key_averages().table(sort_by=order, row_limit=_OPERATORS))
        self._say(
            f"profiled {self._done - WARM_UP_STEPS} steps: {table} has the operators that took "
            f"longest; open {trace} at https://ui.perfetto.dev or chrome://tracing"
        )


def _activities() -> list[ProfilerActivity]:
    cpu, cuda = ProfilerActivity.CPU, ProfilerActivity.CUDA
    return [cpu, cuda] if torch.cuda.is_available() else [cpu]
