"""What is generated for the chart is as its sources say; needs no helm."""

import re
import tomllib

import pytest
import yaml
from builders.chart import CHART, ROOT
from builders.generated_files import check_generated


def test_schema_and_tables_are_fresh():
    check_generated("hack/helm/generate.py")


def test_the_chart_has_every_definition_and_no_copy_of_one():
    there = {path.name: path.resolve() for path in (CHART / "files/crds").iterdir()}
    assert there == {path.name: path for path in (ROOT / "crds").resolve().glob("*.yaml")}


def test_the_chart_has_the_version_of_the_project():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)


def pins(name):
    text = (ROOT / f"requirements/{name}.txt").read_text()
    return set(re.findall(r"(?m)^([\w.-]+==[^\s;]+)", text))


@pytest.mark.parametrize("target", ["operator", "trainer"])
def test_an_image_has_the_tested_versions(target):
    assert pins(target) <= pins("all")


def test_the_operators_image_has_no_torch():
    assert not any(pin.startswith(("torch==", "nvidia-")) for pin in pins("operator"))


def test_pins_name_no_index():
    for path in (ROOT / "requirements").glob("*.txt"):
        assert "://" not in path.read_text(), path
