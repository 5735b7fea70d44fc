"""A moment of a run, as the displays get it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from spes_operator.display import EventLine, HeldOut, PeerView, RunView

START = datetime(2026, 3, 1, 14, 0, 0, tzinfo=UTC)


def make_peer(peer: str, **changes: Any) -> PeerView:
    """A peer in the middle of a round."""
    usual = PeerView(
        peer=peer,
        state="training",
        experts=(0, 1, 2, 3),
        tokens_per_second=4012.4,
        loss=2.4123,
        step=7,
        steps_per_round=10,
        bytes_up=142_000_000,
        bytes_down=98_200_000,
        waited=timedelta(seconds=12.4),
    )
    return replace(usual, **changes)


def make_event(text: str, *, second: int = 0, warning: bool = False) -> EventLine:
    """An event so many seconds after the start."""
    return EventLine(time=START + timedelta(seconds=second), text=text, warning=warning)


def make_view(**changes: Any) -> RunView:
    """Round 14 of a run of two peers and one that was preempted."""
    usual = RunView(
        job="moe-tiny",
        phase="training",
        num_experts=8,
        max_tokens=900_000,
        elapsed=timedelta(seconds=102),
        peers=(
            make_peer("uni-a.0"),
            make_peer("uni-b.0", experts=(4, 5, 6, 7), state="pushed", pushed=True),
            make_peer("uni-c.0", experts=(), state="preempted", tokens_per_second=None, loss=None),
        ),
        round=14,
        version=13,
        tokens=423_936,
        tokens_per_second=8024.8,
        held_out=tuple(
            HeldOut(version=version, tokens=version * 32_000, loss=5.5 - 0.25 * version)
            for version in range(14)
        ),
        epoch=2,
        deadline_in=timedelta(seconds=41),
        events=(
            make_event("Round 1 opened: uni-a.0 owns 0-2, uni-b.0 3-5, uni-c.0 6-7.", second=1),
            make_event("uni-c.0 was preempted and its experts move. " * 6, second=60, warning=True),
        ),
    )
    return replace(usual, **changes)
