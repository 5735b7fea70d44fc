"""What Prometheus is told of an agent."""

from datetime import timedelta

from builders.clock import FakeClock
from prometheus_client import CollectorRegistry, generate_latest
from spes_operator.daemon.member_metrics import MemberMetrics, Sources
from spes_operator.member.health import MemberHealth


def test_every_series_is_told():
    clock = FakeClock()
    health = MemberHealth(clock, {"lease": timedelta(seconds=10), "resync": timedelta(seconds=30)})
    metrics = MemberMetrics()
    registry = CollectorRegistry()
    registry.register(metrics)
    metrics.sources = Sources(
        health=health,
        credential_expires_in=lambda: timedelta(days=7),
        renewal_failures=lambda: 2,
        answers=lambda: {"hub": {"200": 5, "403": 1}, "local": {}},
    )
    metrics.add_pass("ok", 0.2)
    health.heard()
    clock.advance(5)
    lines = set(generate_latest(registry).decode().splitlines())
    assert lines >= {
        "spes_hub_reachable 1.0",
        "spes_hub_silence_seconds 5.0",
        "spes_credential_expiry_seconds 604800.0",
        "spes_credential_renewal_failures 2.0",
        'spes_api_requests_total{api="hub",code="200"} 5.0',
        'spes_api_requests_total{api="hub",code="403"} 1.0',
        'spes_reconcile_duration_seconds_count{kind="Member",result="ok"} 1.0',
    }
