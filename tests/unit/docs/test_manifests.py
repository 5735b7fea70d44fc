"""Every YAML that the documentation shows is what it says: jobs, objects, values of the chart."""

import re

import pytest
import yaml
from builders.chart import EXAMPLES, NAMESPACES, Chart, ChartRefusedError, built_helm
from builders.doc_pages import pages
from spes_api.errors import ConfigError
from spes_api.kinds import MemberCluster
from spes_api.loading import load_file, load_job

BLOCKS = [block for page in pages() for block in page.blocks() if block.language == "yaml"]
MODELS = {"SpesJob": load_job, "MemberCluster": lambda path: load_file(path, MemberCluster)}


def documents(block):
    return [one for one in yaml.safe_load_all(block.text) if one]


MANIFESTS = [block for block in BLOCKS if any("kind" in one for one in documents(block))]
VALUES = [block for block in BLOCKS if block not in MANIFESTS]


def judge(text, tmp_path):
    """Load a manifest as the programs do, if its kind is one of ours."""
    obj = yaml.safe_load(text)
    assert obj["apiVersion"]
    assert obj["metadata"]["name"]
    if obj["kind"] in MODELS:
        path = tmp_path / "document.yaml"
        path.write_text(text)
        MODELS[obj["kind"]](path)
    else:
        assert not obj["apiVersion"].startswith("spes.dev"), obj["kind"]


@pytest.mark.parametrize("block", MANIFESTS, ids=str)
def test_a_manifest_is_taken(block, tmp_path):
    for text in re.split(r"^---$", block.text, flags=re.M):
        judge(text, tmp_path)


def rendered(chart, path):
    """The chart with these values; those without a mode are a part of a member's."""
    mode = yaml.safe_load(path.read_text()).get("mode")
    before = [] if mode else [f"--values={EXAMPLES / 'member.yaml'}"]
    namespace = f"--namespace={NAMESPACES[mode or 'member']}"
    return chart.command("template", namespace, *before, f"--values={path}")


@pytest.mark.parametrize("block", VALUES, ids=str)
def test_values_are_taken_by_the_chart(block, tmp_path):
    path = tmp_path / "values.yaml"
    path.write_text(block.text)
    assert "kind: Deployment" in rendered(Chart(helm=built_helm()), path)


def test_wrong_yaml_is_seen(tmp_path):
    job = next(block for block in MANIFESTS if "kind: SpesJob" in block.text)
    with pytest.raises(ConfigError, match="everyStep is not a field"):
        judge(job.text.replace("everySteps", "everyStep"), tmp_path)
    path = tmp_path / "values.yaml"
    path.write_text("mode: member\nhub: {cidr: [192.0.2.0/28]}\n")
    with pytest.raises(ChartRefusedError, match="cidr"):
        rendered(Chart(helm=built_helm()), path)


def test_pages_show_every_sort():
    assert MANIFESTS
    assert VALUES
