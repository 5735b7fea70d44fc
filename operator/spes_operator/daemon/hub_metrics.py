"""The hub's /metrics: what `Measures` and the connection know, in Prometheus' words.

Read when somebody asks, so that series of what is gone disappear by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from spes_operator.clock import Clock, from_text
from spes_operator.hub.measures import Measures
from spes_operator.hub.view import MemberSeen
from spes_operator.reasons import READY


class HubMetrics(Collector):
    """All series of one hub."""

    def __init__(
        self, measures: Measures, answers: Callable[[], Mapping[str, int]], clock: Clock
    ) -> None:
        """`answers`: HTTP status -> how many requests to the API server had it."""
        self._measures = measures
        self._answers = answers
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """Everything as it is now; called by a thread of the HTTP server."""
        yield from self._members()
        yield from self._jobs()
        passes = HistogramMetricFamily(
            "spes_reconcile_duration_seconds", "Passes of the hub.", labels=["kind", "result"]
        )
        for work, durations in tuple(self._measures.passes.items()):
            passes.add_metric(list(work), list(durations.buckets()), durations.total)
        yield passes
        requests = CounterMetricFamily(
            "spes_api_requests", "Requests to the API server by their answer.", labels=["code"]
        )
        for code, count in sorted(self._answers().items()):
            requests.add_metric([code], count)
        yield requests

    def _members(self) -> Iterator[Metric]:
        states = GaugeMetricFamily("spes_members", "Members by state.", labels=["state"])
        age = GaugeMetricFamily(
            "spes_member_heartbeat_age_seconds", "Since the last heartbeat.", labels=["member"]
        )
        expiry = GaugeMetricFamily(
            "spes_credential_expiry_seconds",
            "Until the credential that a member reports expires.",
            labels=["member"],
        )
        now, members = self._clock.now(), self._measures.members
        found = [_state(seen) for seen in members]
        for state in ("Ready", "NotReady", "Unknown"):
            states.add_metric([state], found.count(state))
        for seen in members:
            age.add_metric([seen.name], seen.silent_for.total_seconds())
            if (left := _credential_left(seen, now)) is not None:
                expiry.add_metric([seen.name], left.total_seconds())
        yield from (states, age, expiry)

    def _jobs(self) -> Iterator[Metric]:
        labels = ["namespace", "job"]
        epoch = GaugeMetricFamily("spes_ownership_epoch", "Changes of ownership.", labels=labels)
        rounds = GaugeMetricFamily("spes_round", "The last committed round.", labels=labels)
        pending = GaugeMetricFamily(
            "spes_assignment_pending_seconds",
            "Age of the oldest assignment whose trainer has no Session yet.",
            labels=labels,
        )
        moves = CounterMetricFamily(
            "spes_expert_moves", "Experts that changed owner.", labels=[*labels, "reason"]
        )
        durations = HistogramMetricFamily(
            "spes_round_duration_seconds", "Between two commits.", labels=labels
        )
        for job in tuple(self._measures.jobs.values()):
            names = list(job.key)
            epoch.add_metric(names, job.epoch)
            rounds.add_metric(names, job.round)
            pending.add_metric(names, job.pending.total_seconds())
            durations.add_metric(names, list(job.rounds.buckets()), job.rounds.total)
            for cause, count in sorted(job.moves.items()):
                moves.add_metric([*names, cause], count)
        yield from (epoch, rounds, pending, moves, durations)


def _state(seen: MemberSeen) -> str:
    found = {one.type: one.status for one in seen.cluster.status.conditions}
    return {"True": "Ready", "False": "NotReady"}.get(found.get(READY, ""), "Unknown")


def _credential_left(seen: MemberSeen, now: datetime) -> timedelta | None:
    credential = seen.report.status.credential if seen.report else None
    try:
        return from_text(credential.expires_at) - now if credential else None
    except ValueError:  # what one member says must not take the page from all
        return None
