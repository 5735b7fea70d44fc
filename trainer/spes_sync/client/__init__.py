"""The peer's side of the sync plane: join, pull, train a round, push, re-base, leave.

Written once for everything that trains: what it needs from a trainer is the `Learner` protocol.
"""

from __future__ import annotations

from spes_sync.client.learner import (
    DataSummary,
    JobTerms,
    Learner,
    OwnershipChange,
    SavePoint,
    StepPosition,
    StepResult,
)

__all__ = [
    "DataSummary",
    "JobTerms",
    "Learner",
    "OwnershipChange",
    "SavePoint",
    "StepPosition",
    "StepResult",
]
