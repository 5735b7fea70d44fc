"""How much a lossy codec drops of what it is given: a figure for people, of a push or of a frame.

Nothing that is dropped is lost, it is owed (see `quantize`); but the more is dropped, the later it
arrives.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from spes_sync.manifest import TensorSpec
from spes_sync.payloads import Codecs, payload_bytes
from spes_sync.quantize import Sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Coding:
    """What coding did to a payload."""

    compression: float = 1.0
    """Bytes in float32 over bytes as coded."""
    error: float = 0.0
    """The norm of what was dropped over the norm of what arrived."""


def compression(tensors: Iterable[TensorSpec], codecs: Codecs) -> float:
    """Bytes of these tensors in float32 over their bytes as coded; 1 without any."""
    tensors = tuple(tensors)
    coded = payload_bytes(tensors, codecs)
    return sum(tensor.num_bytes for tensor in tensors) / coded if coded else 1.0


class Dropped:
    """Adds up over the tensors of a payload."""

    def __init__(self) -> None:
        """Nothing sent yet."""
        self._dropped = self._arrived = 0.0

    def add(self, sent: Sent) -> None:
        """Count a tensor, or a piece of one."""
        self._dropped += float(np.vdot(sent.residual, sent.residual))
        self._arrived += float(np.vdot(sent.decoded, sent.decoded))

    @property
    def relative(self) -> float:
        """The norm of what was dropped over the norm of what arrived; 0 without either."""
        if not math.isfinite(self._dropped) or self._arrived <= 0:
            return 0.0
        return math.sqrt(self._dropped / self._arrived)
