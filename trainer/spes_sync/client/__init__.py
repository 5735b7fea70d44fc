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
from spes_sync.client.options import PeerOptions
from spes_sync.client.peer import PeerOutcome, run_peer

__all__ = [
    "DataSummary",
    "JobTerms",
    "Learner",
    "OwnershipChange",
    "PeerOptions",
    "PeerOutcome",
    "SavePoint",
    "StepPosition",
    "StepResult",
    "run_peer",
]
