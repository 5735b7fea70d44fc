"""Alerts and dashboard ask for series that exist; each alert has its runbook. Needs no helm."""

import itertools
import json
import re

import pytest
import yaml
from builders.chart import CHART
from builders.doc_pages import ROOT, Page, sections

# As Prometheus names what a histogram holds.
PARTS = ("_bucket", "_sum", "_count")
COLUMNS = 24


def served():
    """The name of every series that docs/reference/metrics.md lists; that page has its own test."""
    page = (ROOT / "docs/reference/metrics.md").read_text()
    rows = re.findall(r"^\| `(spes_\w+)` \| (\w+) \|", page, re.M)
    plain = {name for name, kind in rows if kind != "histogram"}
    return plain | {name + part for name, kind in rows if kind == "histogram" for part in PARTS}


def board():
    return json.loads((CHART / "files/dashboard.json").read_text())


def rules():
    for path in sorted((CHART / "files/alerts").glob("*.yaml")):
        for group in yaml.safe_load(path.read_text())["groups"]:
            yield from group["rules"]


def test_the_dashboard_asks_for_series_that_exist():
    panels = [panel for panel in board()["panels"] if panel["type"] != "row"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    asked = {name for query in queries for name in re.findall(r"spes_\w+", query)}
    assert len(panels) == len({panel["title"] for panel in panels}) == 24
    assert asked <= served()


def test_no_panel_covers_another():
    taken = set()
    for panel in board()["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS
        for cell in itertools.product(
            range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        ):
            assert cell not in taken, panel["title"]
            taken.add(cell)
    numbers = [panel["id"] for panel in board()["panels"]]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("rule", list(rules()), ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_series_that_exist_and_says_what_to_do(rule):
    asked = set(re.findall(r"spes_\w+", rule["expr"]))
    assert asked
    assert asked <= served()
    assert rule["labels"]["severity"] in ("warning", "critical")
    path, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert anchor == rule["alert"].lower()
    assert anchor in Page(ROOT / path).anchors


def test_every_alert_has_an_entry_and_no_entry_is_without_alert():
    entries = {
        title.strip("`"): text
        for title, text in sections(Page(ROOT / "docs/runbooks/alerts.md"), 3).items()
    }
    assert entries.keys() == {rule["alert"] for rule in rules()}
