"""The outer optimizer: a step of the server along the mean of the peers' changes, with momentum.

DiLoCo (arXiv 2311.08105), algorithm 1, with Nesterov momentum as PyTorch's SGD has it. With p_c the
weight of peer c, m_c what it pushed, and g = -sum p_c m_c the outer gradient,

    v     <- momentum v + g
    theta <- theta - rate (g + momentum v)

The velocity v belongs to the version that it led to: it is a file of that version, so both are
committed, rolled back and removed together. Peers never see it; their own moments stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from spes_sync.codec import Array, encode
from spes_sync.disk import Disk
from spes_sync.errors import DivergedError
from spes_sync.manifest import Manifest, TensorSpec
from spes_sync.payloads import pieces
from spes_sync.quantize import PIECE_ELEMENTS
from spes_sync.tensorfile import TensorReader, TensorWriter
from spes_sync.versions import VELOCITY


@dataclass(frozen=True, slots=True, kw_only=True)
class OuterStep:
    """Learning rate and momentum; rate 1 without momentum is the plain average."""

    learning_rate: float
    momentum: float

    def advance(self, change: Array, velocity: Array) -> Array:
        """Return the step of the model; `velocity` goes on in place.

        Args:
            change: The weighted mean of what the peers pushed, -g.
            velocity: v after the version before.
        """
        rate, momentum = np.float32(self.learning_rate), np.float32(self.momentum)
        with np.errstate(over="ignore", invalid="ignore"):
            velocity *= momentum
            velocity -= change
            step: Array = rate * (change - momentum * velocity)
        return step


class OuterState:
    """The velocity on its way from one version to the next, piece by piece in name order."""

    def __init__(
        self, step: OuterStep, manifest: Manifest, *, base: Path, target: Path, disk: Disk
    ) -> None:
        """Read it from directory `base` (zero if that has none), write it to `target`.

        Without momentum there is nothing to keep.
        """
        self._step = step
        self._files = ExitStack()
        self._before: TensorReader | None = None
        self._after: TensorWriter | None = None
        if step.momentum == 0:
            return
        if (base / VELOCITY).exists():
            self._before = self._files.enter_context(
                TensorReader.of_safetensors(base / VELOCITY, manifest.tensors)
            )
        self._after = self._files.enter_context(
            TensorWriter(target / VELOCITY, manifest.tensors, disk)
        )

    def steps(self, tensor: TensorSpec, changes: Iterable[Array]) -> Iterator[Array]:
        """Yield a tensor's step for each piece of the peers' mean change.

        Raises:
            DivergedError: the velocity would not be finite.
        """
        velocity = np.zeros(PIECE_ELEMENTS, np.float32)
        for (start, size), change in zip(pieces(tensor), changes, strict=True):
            if self._before is not None:
                self._before.read(tensor, start, velocity[:size])
            else:
                velocity[:size] = 0
            yield self._step.advance(change, velocity[:size])
            if not np.isfinite(velocity[:size]).all():
                raise DivergedError(
                    f"the outer velocity of {tensor.name} would not be finite; the last version "
                    "stays; lower algorithm.outer.learningRate or training's learning rate"
                )
            if self._after is not None:
                self._after.write(encode(velocity[:size]))

    def close(self) -> Mapping[str, str]:
        """Make the velocity durable; the SHA-256 of its file, if there is one."""
        if self._after is None:
            return {}
        return {VELOCITY: self._after.close("version-velocity")}

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Release the handles."""
        self._files.close()
