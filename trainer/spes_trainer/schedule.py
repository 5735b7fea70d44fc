"""The learning rate as a function of the tokens that all peers have trained. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from spes_api.job import TrainingSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Linear warm-up from a share of the peak, then a cosine down to it (SPES, as released).

    Positions are global tokens, the step at hand included, so that peers of different speed and
    number agree.
    """

    peak: float
    warmup_tokens: int
    max_tokens: int
    final_fraction: float

    @classmethod
    def of(cls, training: TrainingSpec) -> Self:
        """The schedule of a job."""
        return cls(
            peak=training.optimizer.learning_rate,
            warmup_tokens=training.warmup_tokens,
            max_tokens=training.max_tokens,
            final_fraction=training.schedule.final_fraction,
        )

    def rate(self, position: int) -> float:
        """Return the learning rate of the step that ends at a position."""
        final = self.final_fraction
        if position < self.warmup_tokens:
            return self.peak * (final + (1 - final) * position / self.warmup_tokens)
        if position >= self.max_tokens:
            return self.peak * final
        progress = (position - self.warmup_tokens) / (self.max_tokens - self.warmup_tokens)
        return self.peak * (final + (1 - final) * (1 + math.cos(math.pi * progress)) / 2)
