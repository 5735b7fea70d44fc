"""Steps as the training log is told of them."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
from spes_trainer.metrics.experts import ExpertLoad
from spes_trainer.metrics.record import Place, StepRecord
from spes_trainer.step import StepOutcome

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def place(step: int = 1, **changes) -> Place:
    """Of the step of that number."""
    given = {
        "step": step,
        "round": 1,
        "global_tokens": 64 * step,
        "learning_rate": 0.01,
        "seconds": 0.5,
    }
    return Place(**given | changes)


def outcome(routed=((30, 34, 32, 32),), **changes) -> StepOutcome:
    """Of a step with these tokens for each expert of each layer."""
    given = {
        "loss": 2.5,
        "z_loss": 20.0,
        "load_balance": 1.25,
        "router_z_loss": 3.0,
        "gradient_norm": 0.75,
        "tokens": 64,
        "routed": np.array(routed),
        "owned": frozenset(range(4)),
        "peak_bytes": 3 * 2**20,
    }
    return StepOutcome(**given | changes)


def record(step: int = 1, *, mfu=None, routed=((30, 34, 32, 32),), **changes) -> StepRecord:
    """Of the step of that number; changes are of its outcome."""
    done = outcome(routed, **changes)
    return StepRecord(
        time=NOON, place=place(step), outcome=done, load=ExpertLoad.of(done.routed), mfu=mfu
    )
