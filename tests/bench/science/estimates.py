"""Means over seeds, and when two of them can be told apart. Pure.

A difference of two arms has the standard error of two independent samples (Welch). The seeds are
the same for both arms, but pairing them would leave two degrees of freedom for the error itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import hypot, sqrt
from statistics import mean, stdev

# Standard errors beyond which a difference counts.
BEYOND = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Of a quantity over the seeds of an arm."""

    mean: float
    deviation: float | None
    """Of the sample; None with one seed."""
    num_seeds: int

    @property
    def standard_error(self) -> float | None:
        """Of the mean; None with one seed."""
        return None if self.deviation is None else self.deviation / sqrt(self.num_seeds)


class Told(StrEnum):
    """What a difference says."""

    LOWER = "lower"
    HIGHER = "higher"
    NOT_APART = "not told apart"
    UNKNOWN = "one seed tells nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Of two means."""

    mean: float
    standard_error: float | None

    @property
    def told(self) -> Told:
        """Whether it is beyond `BEYOND` standard errors, and on which side."""
        if self.standard_error is None:
            return Told.UNKNOWN
        if abs(self.mean) <= BEYOND * self.standard_error:
            return Told.NOT_APART
        return Told.LOWER if self.mean < 0 else Told.HIGHER


def estimate(values: Sequence[float]) -> Estimate:
    """Of one value a seed; at least one."""
    return Estimate(
        mean=mean(values),
        deviation=stdev(values) if len(values) > 1 else None,
        num_seeds=len(values),
    )


def difference(ours: Estimate, theirs: Estimate) -> Difference:
    """How far `ours` lies above `theirs`."""
    errors = (ours.standard_error, theirs.standard_error)
    known = None if None in errors else hypot(*(error or 0.0 for error in errors))
    return Difference(mean=ours.mean - theirs.mean, standard_error=known)
