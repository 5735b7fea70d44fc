"""An agent's /metrics, in Prometheus' words; read when somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from spes_operator.member.health import MemberHealth


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the values come from."""

    health: MemberHealth
    credential_expires_in: Callable[[], timedelta]
    renewal_failures: Callable[[], int]
    answers: Callable[[], Mapping[str, Mapping[str, int]]]
    """Of the hub and of the member's own cluster: HTTP status -> how many requests had it."""


class MemberMetrics(Collector):
    """All series of one agent."""

    def __init__(self) -> None:
        """Nothing was measured yet."""
        self.sources: Sources | None = None
        """Given once the agent is put together, before anybody asks."""
        self._passes = Histogram(
            "spes_reconcile_duration_seconds",
            "Passes of the agent.",
            ["kind", "result"],
            registry=None,
        )

    def add_pass(self, result: str, seconds: float) -> None:
        """A pass has ended."""
        self._passes.labels("Member", result).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """Everything as it is now; called by a thread of the HTTP server."""
        yield from self._passes.collect()
        if self.sources is None:
            return
        sources, health = self.sources, self.sources.health
        for name, text, value in (
            ("spes_hub_reachable", "1 while the hub answers.", health.reaches_hub),
            (
                "spes_hub_silence_seconds",
                "Since the hub's last answer.",
                health.hub_silent_for.total_seconds(),
            ),
            (
                "spes_credential_expiry_seconds",
                "Until the agent's token of the hub ends.",
                sources.credential_expires_in().total_seconds(),
            ),
            (
                "spes_credential_renewal_failures",
                "Renewals of that token that failed, in a row.",
                sources.renewal_failures(),
            ),
        ):
            yield GaugeMetricFamily(name, text, value)
        requests = CounterMetricFamily(
            "spes_api_requests", "Requests by their answer.", labels=["api", "code"]
        )
        for api, answers in sorted(sources.answers().items()):
            for code, count in sorted(answers.items()):
                requests.add_metric([api, code], count)
        yield requests
