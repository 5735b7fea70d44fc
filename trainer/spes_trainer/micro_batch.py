"""How many sequences go through the model at once: as many as configured, fewer on a small GPU.

The gradient of the language loss does not depend on it, since it is normalised by labels over all
micro-batches of a step; the balancing losses are means over micro-batches.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from spes_trainer.errors import DeviceMemoryError

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class MicroBatch:
    """Begins with what the job allows and shrinks when the device says that it has no room."""

    sequences: int
    """At once, over all ranks."""
    sequence_tokens: int

    def shrink(self, reason: str) -> None:
        """Take the largest divisor that is at most half, so that parts of a step stay equal.

        Raises:
            DeviceMemoryError: a single sequence does not fit.
        """
        before = self.sequences
        if before == 1:
            raise DeviceMemoryError(
                f"one sequence of {self.sequence_tokens} tokens does not fit into the device's "
                f"memory ({reason}); lower data.sequenceTokens, set "
                "trainer.activationCheckpointing, or give each peer a larger GPU"
            )
        self.sequences = max(n for n in range(1, before // 2 + 1) if before % n == 0)
        _log.warning(
            "no device memory for %d sequences at once (%s): the step is made again with %d; "
            "training.microBatchTokens: %d starts so",
            before,
            reason,
            self.sequences,
            self.sequences * self.sequence_tokens,
        )
