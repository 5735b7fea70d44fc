"""Alerts fire when they should and not before, as Prometheus' own tool judges their rules."""

import os
import shutil
import subprocess

import pytest
import yaml
from builders.doc_pages import ROOT

CASES = ROOT / "tests/golden/alerts.yaml"
RULES = [
    rule["alert"]
    for path in sorted((ROOT / "helm/spes/files/alerts").glob("*.yaml"))
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
]


def test_every_alert_has_a_case_in_which_it_fires():
    cases = yaml.safe_load(CASES.read_text())["tests"]
    fires = {
        one["alertname"] for case in cases for one in case["alert_rule_test"] if one["exp_alerts"]
    }
    assert fires == set(RULES)


def test_alerts_fire_when_they_should():
    promtool = shutil.which("promtool")
    if promtool is None:
        message = (
            "no promtool on the path; it comes with Prometheus (Debian: apt install prometheus)"
        )
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    ran = subprocess.run(
        [promtool, "test", "rules", str(CASES)],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
