"""The hub's series: named as documented, and gone with what they speak of."""

import socket
import urllib.request

from prometheus_client import CollectorRegistry, generate_latest
from spes_operator.daemon.hub_metrics import HubMetrics
from spes_operator.daemon.metrics_server import serve_metrics

A, B = "uni-a.0", "uni-b.0"
LABELS = 'job="moe-tiny",namespace="research"'


def series_of(world):
    metrics = HubMetrics(world.hub.measures, lambda: {"200": 3, "409": 1}, world.clock)
    registry = CollectorRegistry()
    registry.register(metrics)
    lines = generate_latest(registry).decode().splitlines()
    pairs = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in pairs}


async def training(world):
    await world.create_job()
    for name in ("uni-a", "uni-b"):
        await world.add_member(name, 8)
    await world.start_training(A, B)
    for _ in range(3):
        world.sync.commit()
        await world.advance(5)


def test_series_tell_of_members_jobs_and_requests(play):
    async def scenario(world):
        await training(world)
        found = series_of(world)
        assert found['spes_members{state="Ready"}'] == 2
        assert found['spes_member_heartbeat_age_seconds{member="uni-a"}'] < 2
        assert found[f"spes_ownership_epoch{{{LABELS}}}"] == 1
        assert found[f"spes_round{{{LABELS}}}"] == 3
        assert found[f"spes_round_duration_seconds_count{{{LABELS}}}"] == 2
        assert 4 < found[f"spes_round_duration_seconds_sum{{{LABELS}}}"] / 2 < 6
        assert found['spes_api_requests_total{code="409"}'] == 1

    play(scenario)


def test_moves_are_counted_by_their_cause(play):
    async def scenario(world):
        await training(world)
        world.stop_agent("uni-b")
        world.sync.disconnect(B)
        world.sync.silence(B, 20)
        await world.advance(25)
        found = series_of(world)
        moved = 'spes_expert_moves_total{job="moe-tiny",namespace="research",reason="Silence"}'
        assert found.get(moved, 0) > 0

    play(scenario)


def test_series_of_what_is_gone_disappear(play):
    async def scenario(world):
        await training(world)
        await world.api.delete("MemberCluster", "", "uni-b")
        await world.api.delete("SpesJob", *world.key)
        await world.advance(200, every=10)
        text = " ".join(series_of(world))
        assert "uni-b" not in text
        assert "moe-tiny" not in text

    play(scenario)


def test_a_members_odd_report_does_not_take_the_page_from_the_others(play):
    async def scenario(world):
        await training(world)
        odd = {"credential": {"expiresAt": "soon", "persisted": True}}
        report = await world.api.get("MemberReport", "spes-member-uni-a", "report")
        status = report["status"] | odd
        await world.api.patch_status("MemberReport", "spes-member-uni-a", "report", status)
        await world.hub.reconcile_members()
        assert series_of(world)['spes_members{state="Ready"}'] == 2

    play(scenario)


def test_metrics_and_readiness_are_served():
    ready = [True]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    class Nothing:
        def collect(self):
            return []

    def status(path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    with serve_metrics(Nothing(), lambda: ready[0], "127.0.0.1", port):
        assert status("/metrics") == 200
        assert status("/readyz") == 200
        ready[0] = False
        assert status("/readyz") == 503
