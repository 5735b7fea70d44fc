"""The dashboard asks for series that the programs have; needs no helm."""

import json
import re
from datetime import timedelta

from builders.chart import CHART
from spes_operator.clock import SystemClock
from spes_operator.daemon.hub_metrics import HubMetrics
from spes_operator.daemon.member_metrics import MemberMetrics, Sources
from spes_operator.hub.measures import Measures
from spes_operator.member.health import MemberHealth

SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}


def served():
    """The name of every series."""
    hub = HubMetrics(Measures(), dict, SystemClock())
    agent = MemberMetrics()
    periods = {"lease": timedelta(seconds=10), "resync": timedelta(seconds=60)}
    agent.sources = Sources(
        health=MemberHealth(SystemClock(), periods),
        credential_expires_in=timedelta,
        renewal_failures=int,
        answers=dict,
    )
    families = [*hub.collect(), *agent.collect()]
    return {one.name + suffix for one in families for suffix in SUFFIXES.get(one.type, ("",))}


def test_the_dashboard_asks_for_series_that_exist():
    board = json.loads((CHART / "files/dashboard.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked = {name for query in queries for name in re.findall(r"spes_\w+", query)}
    assert len(queries) == 10
    assert asked <= served()
