"""Values that contradict the mode, or that a program would refuse, are refused with their path."""

import pytest
from builders.chart import CHART, ChartRefusedError

MEMBER_VALUES = [
    ('join.existingSecret="spes-join"', "/join/existingSecret"),
    ('member.namespace="spes"', "/member/namespace"),
    ('member.config={"heartbeatSeconds": 5}', "/member/config"),
    ('hub.cidrs=["192.0.2.0/28"]', "/hub/cidrs"),
    ('networkPolicy.apiServer.cidrs=["192.0.2.1/32"]', "/networkPolicy/apiServer/cidrs"),
]
HUB_VALUES = [
    ('hub.config={"jobNamespaces": ["research"]}', "/hub/config"),
    ('hub.apiAudiences=["k3s"]', "/hub/apiAudiences"),
    ("crds.enabled=false", "/crds/enabled"),
]
WRONG = [
    ("hub", 'mode="spoke"', "/mode"),
    ("hub", "colour=1", "colour"),
    ("hub", 'hub.config.jobNamespaces=["Research"]', "/hub/config/jobNamespaces/0"),
    ("hub", "hub.config.jobNamespaces=[]", "/hub/config/jobNamespaces"),
    ("hub", "hub.config.exposure={}", "/hub/config/exposure"),
    ("hub", 'hub.config.exposure.sni={"domain": "a.example"}', "/hub/config/exposure"),
    ("hub", 'hub.config.namespace="elsewhere"', "/hub/config"),
    ("hub", 'images.operator.digest="sha256:abc"', "/images/operator/digest"),
    ("hub", 'images.operator.repository=""', "/images/operator/repository"),
    ("member", 'join.existingSecret=""', "/join/existingSecret"),
    ("member", 'images.trainer.repository=""', "/images/trainer/repository"),
    ("member", "hub.cidrs=[]", "/hub/cidrs"),
    ("member", 'hub.cidrs=["hub.example.org"]', "/hub/cidrs/0"),
    ("member", 'member.config.datasets=[{"name": "a"}]', "/member/config/datasets/0"),
    ("member", 'member.config.workVolume.type="nfs"', "/member/config/workVolume/type"),
    ("both", 'member.config.slots=[{"name": "a"}]', "/member/config/slots/0"),
    ("both", 'member.config.slots=[{"name": "a", "memory": "80 GB"}]', "slots/0/memory"),
]


def refused(chart, mode, *values, **options):
    with pytest.raises(ChartRefusedError) as refusal:
        chart.render(mode, *values, **options)
    return str(refusal.value)


@pytest.mark.parametrize(("value", "path"), MEMBER_VALUES)
def test_a_hub_refuses_what_only_members_use(chart, value, path):
    assert f"'{path}'" in refused(chart, "hub", value)


@pytest.mark.parametrize(("value", "path"), HUB_VALUES)
def test_a_member_refuses_what_only_hubs_use(chart, value, path):
    assert f"'{path}'" in refused(chart, "member", value)


@pytest.mark.parametrize(("mode", "value", "path"), WRONG)
def test_a_wrong_value_is_refused_with_its_path(chart, mode, value, path):
    assert path in refused(chart, mode, value)


def test_without_a_mode_nothing_is_installed(chart):
    with pytest.raises(ChartRefusedError, match="'/mode'"):
        chart.command("template")


def test_a_hub_elsewhere_than_in_its_namespace_is_refused(chart):
    assert "spes-system (got elsewhere)" in refused(chart, "hub", namespace="elsewhere")


@pytest.mark.parametrize(
    ("mode", "values", "namespace"),
    [("member", (), "spes-system"), ("both", ('member.namespace="spes-system"',), "")],
)
def test_an_agent_beside_the_hubs_secrets_is_refused(chart, mode, values, namespace):
    assert "must not be spes-system" in refused(chart, mode, *values, namespace=namespace)


@pytest.mark.parametrize("mode", ["hub", "member", "both"])
def test_examples_pass_the_linter(chart, mode):
    namespace = "spes" if mode == "member" else "spes-system"
    values = CHART / f"examples/{mode}.yaml"
    chart.command("lint", "--strict", f"--namespace={namespace}", f"--values={values}")
