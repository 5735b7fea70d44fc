"""Where and in which precision a model is computed."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from spes_api.job import Precision

# What Linux knows about this process.
_STATUS = Path("/proc/self/status")
_PEAK = re.compile(rb"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """A device, and whether matrix products run in bfloat16 on it."""

    device: torch.device
    bfloat16: bool

    @classmethod
    def choose(cls, precision: Precision) -> Self:
        """The first GPU if there is one, else the CPU, always in float32.

        A CPU's bfloat16 is several times slower.
        """
        gpu = torch.cuda.is_available()
        if gpu:
            _require_determinism()
        return cls(
            device=torch.device("cuda" if gpu else "cpu"), bfloat16=gpu and precision == "BF16"
        )

    def peak_bytes(self) -> int:
        """Device memory at its highest so far; 0 on a CPU, where it is not measured."""
        return torch.cuda.max_memory_allocated(self.device) if self.device.type == "cuda" else 0

    def memory_bytes(self) -> int:
        """Memory of this process at its highest so far: the device's, on a CPU its own.

        0 where the operating system does not say.
        """
        return self.peak_bytes() if self.device.type == "cuda" else _peak_resident_bytes()

    def forget_freed(self) -> None:
        """Give the device's memory back that torch keeps for later, in pieces of other sizes."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def autocast(self) -> AbstractContextManager[None]:
        """Wrap a forward pass; weights, gradients and the optimizer stay in float32."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.bfloat16)


def _peak_resident_bytes() -> int:
    """VmHWM; `getrusage` would count what the parent of this process had when it started it."""
    try:
        status = _STATUS.read_bytes()
    except OSError:
        return 0
    found = _PEAK.search(status)
    return 1024 * int(found[1]) if found else 0


def _require_determinism() -> None:
    """Let every operation give the same bits on every run, or fail.

    The CPU operations used here do so anyway, and the switch imports a compiler, which takes
    seconds.
    """
    torch.use_deterministic_algorithms(True)
    # Filling fresh memory with NaN finds bugs and costs time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # not in the stubs
