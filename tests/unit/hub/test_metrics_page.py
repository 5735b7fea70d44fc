"""docs/reference/metrics.md lists every series of hub, agent and sync server, and no other."""

import re
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders.clock import FakeClock
from spes_operator.daemon.hub_metrics import HubMetrics
from spes_operator.daemon.member_metrics import MemberMetrics, Sources
from spes_operator.hub.measures import Measures
from spes_operator.member.health import MemberHealth
from spes_proto.v1 import control_pb2
from spes_sync.server import messages
from spes_sync.server.metrics import RunCollector

PAGE = Path(__file__).parents[3] / "docs/reference/metrics.md"


def on_the_page(program):
    """Name, type and labels of each series of a program."""
    section = re.search(rf"^## {program}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)[1]
    rows = [[cell.strip() for cell in line.split("|")] for line in section.splitlines()]
    return {
        (row[1].strip("`"), row[2], tuple(filter(None, row[3].split(", "))))
        for row in rows
        if len(row) > 1 and row[1].startswith("`")
    }


def in_the_code(collector):
    return {
        (f"{one.name}_total" if one.type == "counter" else one.name, one.type, labels_of(one))
        for one in collector.collect()
    }


def labels_of(metric):
    """Those that a family declares, or its samples carry."""
    declared = getattr(metric, "_labelnames", None)
    found = declared or {name: None for one in metric.samples for name in one.labels}
    return tuple(name for name in found if name != "le")


def hub(_):
    return HubMetrics(Measures(), dict, FakeClock())


def agent(_):
    metrics = MemberMetrics()
    metrics.sources = Sources(
        health=MemberHealth(FakeClock(), {"lease": timedelta(seconds=10)}),
        credential_expires_in=timedelta,
        renewal_failures=int,
        answers=dict,
    )
    metrics.add_pass("ok", 0.1)
    return metrics


def sync_server(monkeypatch):
    monkeypatch.setattr(messages, "sync_state", lambda *_: control_pb2.SyncState())
    clocks, accounts = SimpleNamespace(now=int), SimpleNamespace(refusals={})
    return RunCollector(SimpleNamespace(run=None, accounts=accounts, clocks=clocks))


@pytest.mark.parametrize(
    ("program", "collector"), [("Hub", hub), ("Agent", agent), ("Sync server", sync_server)]
)
def test_the_page_lists_every_series(program, collector, monkeypatch):
    assert on_the_page(program) == in_the_code(collector(monkeypatch))
