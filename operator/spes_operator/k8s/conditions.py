"""Conditions: how an object is, in the form that Kubernetes gives it. Pure.

Written by the hub about jobs and members, and by a member about its assignments.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from spes_api.schema_base import Condition

from spes_operator.clock import to_text
from spes_operator.k8s.events import MAX_MESSAGE_BYTES, cut


class State(NamedTuple):
    """One thing that is judged."""

    kind: str
    is_true: bool | None
    """None: it cannot be known now."""
    reason: str
    message: str = ""


def next_conditions(
    before: Sequence[Condition], states: Sequence[State], *, generation: int, now: datetime
) -> list[Condition]:
    """The conditions that follow, in the order of `states`.

    Args:
        before: Those that are written; the time of a status that stays is kept.
        states: What holds now.
        generation: Of the spec that was judged.
        now: The time of a status that changes.
    """
    written = {condition.type: condition for condition in before}
    return [_next(written.get(state.kind), state, generation, now) for state in states]


def _next(before: Condition | None, state: State, generation: int, now: datetime) -> Condition:
    status: Literal["True", "False", "Unknown"] = "Unknown"
    if state.is_true is not None:
        status = "True" if state.is_true else "False"
    kept = before.last_transition_time if before and before.status == status else ""
    return Condition(
        type=state.kind,
        status=status,
        reason=state.reason,
        message=cut(state.message, MAX_MESSAGE_BYTES),
        observed_generation=generation,
        last_transition_time=kept or to_text(now),
    )
