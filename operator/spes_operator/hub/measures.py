"""What the hub measures of itself, its jobs and members, for whoever shows it. Plain data, no I/O.

A job or member that is gone is forgotten, so that nothing is shown of it any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from spes_api.kinds import TrainerAssignment

from spes_operator.clock import Clock, from_text
from spes_operator.hub.ownership import Move
from spes_operator.hub.view import HubView, MemberSeen
from spes_operator.names import ObjectKey
from spes_operator.reasons import POD_READY

# Upper bounds of the buckets of durations, seconds; a round may take an hour, a pass milliseconds.
BUCKETS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 30.0, 120.0, 600.0, 3600.0)


class Durations:
    """How often something took how long."""

    def __init__(self) -> None:
        """Nothing happened yet."""
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        self.total += seconds
        self.counts[sum(seconds > bound for bound in BUCKETS)] += 1

    def buckets(self) -> Iterator[tuple[str, float]]:
        """Upper bound -> how many took at most that long."""
        reached = 0
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), self.counts, strict=True):
            reached += count
            yield bound, reached


class Pass(NamedTuple):
    """Kind of work and how it ended."""

    kind: str
    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMeasured:
    """One job."""

    key: ObjectKey
    epoch: int = 0
    round: int = 0
    round_began: float = 0.0
    """When the version was first seen; monotonic."""
    rounds: Durations = field(default_factory=Durations)
    moves: Mapping[str, int] = field(default_factory=dict)
    """Cause -> how many since this process first saw the job."""
    pending: timedelta = timedelta()
    """Age of the oldest assignment whose trainer has no Session yet."""


class Measures:
    """The last known of everything."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.jobs: dict[str, JobMeasured] = {}
        self.members: tuple[MemberSeen, ...] = ()
        self.passes: dict[Pass, Durations] = {}

    def note_pass(self, kind: str, result: str, seconds: float) -> None:
        """A pass of the hub ended."""
        self.passes.setdefault(Pass(kind, result), Durations()).add(seconds)

    def note_members(self, members: Sequence[MemberSeen]) -> None:
        """All members there are."""
        self.members = tuple(members)

    def note_job(self, seen: HubView, clock: Clock) -> None:
        """A pass over a job saw this."""
        now = clock.monotonic()
        metadata = seen.job.metadata
        key = ObjectKey(metadata.namespace, metadata.name)
        before = self.jobs.get(metadata.uid)
        epoch = seen.ownership.epoch if seen.ownership else 0
        known = before or JobMeasured(key=key, epoch=epoch, round_began=now)
        moves = seen.ownership.moves_after(known.epoch) if seen.ownership else ()
        version = max(seen.sync.version, 0) if seen.sync else known.round
        is_next = version > known.round > 0
        if is_next:
            known.rounds.add((now - known.round_began) / (version - known.round))
        self.jobs[metadata.uid] = replace(
            known,
            epoch=epoch,
            round=version,
            round_began=now if version != known.round else known.round_began,
            moves=_added(known.moves, moves),
            pending=_pending(seen, clock.now()),
        )

    def forget_job(self, uid: str) -> None:
        """The job is gone."""
        self.jobs.pop(uid, None)


def _added(before: Mapping[str, int], moves: Sequence[Move]) -> Mapping[str, int]:
    return Counter(before) + Counter(move.cause.value for move in moves)


def _pending(seen: HubView, now: datetime) -> timedelta:
    waiting = [
        now - from_text(item.metadata.creation_timestamp)
        for item in seen.assignments
        if item.spec.desired == "Run" and item.metadata.creation_timestamp and not _is_ready(item)
    ]
    return max(waiting, default=timedelta())


def _is_ready(assignment: TrainerAssignment) -> bool:
    return any(
        condition.type == POD_READY and condition.status == "True"
        for condition in assignment.status.conditions
    )
