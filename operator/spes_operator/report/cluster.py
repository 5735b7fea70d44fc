"""Reads what the control plane left in `cluster.json`: its events, and why experts moved.

Pure: takes the parsed file. Objects that are not as expected are skipped, for the file may stem
from a run that was killed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spes_operator.errors import ConfigError
from spes_operator.hub.ownership import Cause, Ownership
from spes_operator.names import ownership_name


@dataclass(frozen=True, slots=True, kw_only=True)
class HubEvent:
    """Something the hub or a member did or met, as a sentence."""

    time: datetime
    reason: str
    message: str
    warning: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One expert changed its owner."""

    round: int
    """The first that was trained with the new owner."""
    epoch: int
    expert: int
    source: str | None
    """None: it had no owner."""
    target: str | None
    """None: it is parked, no peer has room."""
    reason: str
    lower_bound: int | None
    """The fewest moves that this change of ownership could have taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What `cluster.json` tells."""

    events: tuple[HubEvent, ...] = ()
    moves: tuple[Moved, ...] = ()


def read_cluster(document: Any, *, job: str) -> Cluster:
    """Return the events, oldest first, and the moves of `job`'s experts."""
    events: list[HubEvent] = []
    moves: list[Moved] = []
    for item in _objects(document):
        try:
            if item["kind"] == "Event":
                events.append(_event(item))
            elif item["kind"] == "ConfigMap" and item["metadata"]["name"] == ownership_name(job):
                moves.extend(_moves(item))
        except (ConfigError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return Cluster(events=tuple(sorted(events, key=lambda event: event.time)), moves=tuple(moves))


def _objects(document: Any) -> Iterator[dict[str, Any]]:
    """Every Kubernetes object in the document, however it is nested."""
    if isinstance(document, dict) and "kind" in document and "metadata" in document:
        yield document
    elif isinstance(document, dict | list):
        for part in document.values() if isinstance(document, dict) else document:
            yield from _objects(part)


def _event(item: dict[str, Any]) -> HubEvent:
    time = item.get("eventTime") or item.get("lastTimestamp")
    return HubEvent(
        time=datetime.fromisoformat(time or item["metadata"]["creationTimestamp"]),
        reason=str(item["reason"]),
        message=str(item["message"]),
        warning=item.get("type") == "Warning",
    )


def _moves(config_map: dict[str, Any]) -> Iterator[Moved]:
    """The first placement gives experts to peers, but moves none."""
    for move in Ownership.from_config_map(config_map).moves:
        if move.cause is not Cause.START:
            yield Moved(
                round=move.round,
                epoch=move.epoch,
                expert=move.expert,
                source=move.source,
                target=move.target,
                reason=move.reason,
                lower_bound=move.lower_bound,
            )
