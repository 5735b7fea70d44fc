"""What the chart starts: settings that the programs read themselves, and pods without rights."""

import itertools

import pytest
import yaml
from builders.chart import CHART, MONITORING, NAMESPACES, only, pod_of
from spes_api.loading import load_file
from spes_operator.daemon.hub_config import HubConfig
from spes_operator.daemon.member_config import MemberConfig
from spes_operator.member.job_manifest import LABEL_MANAGED_BY, MANAGED_BY
from spes_operator.names import LABEL_JOB

SURROUNDINGS = (
    'extraCA.configMap="institution"',
    'proxy={"https": "http://proxy.example:3128", "noProxy": ".example.org"}',
    'images.pullSecrets=["registry"]',
)


def config_of(objects, name, folder, model):
    path = folder / "config.yaml"
    path.write_text(only(objects, "ConfigMap", name)["data"]["config.yaml"])
    return load_file(path, model)


def test_the_hub_reads_its_settings(chart, tmp_path):
    trainer = 'images.trainer.repository="registry.example.org/spes/trainer"'
    config = config_of(chart.render("hub", trainer), "spes-hub", tmp_path, HubConfig)
    assert config.namespace == "spes-system"
    assert config.job_namespaces == ["research"]
    assert config.images.sync == "registry.example.org/spes/operator:0.1.0"
    assert config.images.trainer == "registry.example.org/spes/trainer:0.1.0"


def test_a_member_of_the_examples_takes_jobs_of_their_hub(chart, tmp_path):
    """An image that the hub names is asked for everywhere, and the member allows its own alone."""
    config = config_of(chart.render("hub"), "spes-hub", tmp_path, HubConfig)
    assert config.images.trainer == ""


def test_the_agent_reads_its_settings(chart, tmp_path):
    config = config_of(chart.render("member"), "spes-member", tmp_path, MemberConfig)
    assert config.namespace == "spes"
    assert config.image.startswith("registry.uni-b.example.org/spes/trainer@sha256:")
    assert config.limits.max_jobs == 2
    assert config.work_volume.storage_class == "fast"


def test_both_live_in_namespaces_of_their_own(chart, tmp_path):
    objects = chart.render("both")
    assert config_of(objects, "spes-hub", tmp_path, HubConfig).namespace == "spes-system"
    member = config_of(objects, "spes-member", tmp_path, MemberConfig)
    assert member.namespace == "spes"
    assert member.slots[0].memory_bytes == 80 * 2**30
    assert only(objects, "Deployment", "spes-member")["metadata"]["namespace"] == "spes"


@pytest.mark.parametrize("mode", ["hub", "member"])
def test_probes_and_metrics_are_where_the_program_serves_them(chart, tmp_path, mode):
    objects = chart.render(mode)
    model = {"hub": HubConfig, "member": MemberConfig}[mode]
    config = config_of(objects, f"spes-{mode}", tmp_path, model)
    (container,) = pod_of(objects, f"spes-{mode}")["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"probes": config.probe_port, "metrics": config.metrics_port}


@pytest.mark.parametrize("mode", NAMESPACES)
def test_every_object_is_labelled(chart, mode):
    for one in chart.render(mode, apis=[MONITORING]):
        labels = one["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "spes", one
        assert labels["app.kubernetes.io/instance"] == "spes", one
        assert labels["app.kubernetes.io/managed-by"] == "Helm", one
        assert labels["app.kubernetes.io/version"] == "0.1.0", one
        assert labels["app.kubernetes.io/component"], one


@pytest.mark.parametrize("mode", NAMESPACES)
def test_no_object_comes_twice(chart, mode):
    names = [
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"])
        for one in chart.render(mode, apis=[MONITORING])
    ]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("mode", NAMESPACES)
def test_pods_have_no_rights_on_their_node(chart, mode):
    objects = chart.render(mode, *SURROUNDINGS)
    for pod in pods(objects):
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def pods(objects):
    kinds = {one["kind"] for one in objects}
    assert not kinds & {"Job", "DaemonSet", "StatefulSet", "CronJob"}
    yield from (one["spec"]["template"]["spec"] for one in objects if one["kind"] == "Deployment")
    yield from (one["spec"] for one in objects if one["kind"] == "Pod")


@pytest.mark.parametrize(("program", "asks"), [("hub", "check-hub"), ("member", "check")])
def test_the_check_sees_what_the_program_sees(chart, program, asks):
    objects = chart.render(program, *SURROUNDINGS)
    check = only(objects, "Pod", f"spes-{program}-check")
    assert check["metadata"]["annotations"]["helm.sh/hook"] == "test"
    checked, asked = (
        dict(one["containers"][0]) for one in (pod_of(objects, f"spes-{program}"), check["spec"])
    )
    assert asked.pop("command") == ["spes-operator", asks]
    assert {key: checked[key] for key in asked} | {"name": "check"} == asked
    assert check["spec"]["volumes"] == pod_of(objects, f"spes-{program}")["volumes"]
    assert check["spec"]["serviceAccountName"] == f"spes-{program}"


def test_the_agent_gets_its_invitation_as_a_file(chart):
    pod = pod_of(chart.render("member"), "spes-member")
    (container,) = pod["containers"]
    assert "--hub-kubeconfig=/etc/spes/join/kubeconfig" in container["args"]
    assert "--name=$(SPES_MEMBER)" in container["args"]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    invitation = volumes[mounts["/etc/spes/join"]]
    assert invitation["secret"]["secretName"] == "spes-join"
    assert "emptyDir" in volumes[mounts[MemberConfig(image="a").state]]


def test_a_changed_setting_restarts_the_program(chart):
    hashes = [
        only(objects, "Deployment", "spes-hub")["spec"]["template"]["metadata"]["annotations"]
        for objects in (chart.render("hub"), chart.render("hub", 'hub.config.sync={"limits": {}}'))
    ]
    assert hashes[0] != hashes[1]


def test_a_proxy_is_not_asked_for_the_own_cluster(chart):
    (container,) = pod_of(chart.render("member", *SURROUNDINGS), "spes-member")["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert env["HTTPS_PROXY"] == "http://proxy.example:3128"
    assert {"$(KUBERNETES_SERVICE_HOST)", ".svc", ".example.org"} <= set(env["NO_PROXY"].split(","))
    assert env["SSL_CERT_FILE"] == "/etc/spes/ca/ca.crt"


def test_trainers_use_the_proxy_as_grpc_reads_it(chart, tmp_path):
    def env(*values):
        objects = chart.render("member", *values)
        return config_of(objects, "spes-member", tmp_path, MemberConfig).env

    assert env() == {}
    given = env(*SURROUNDINGS, 'member.config.env={"OMP_NUM_THREADS": "1"}')
    assert given == {
        "OMP_NUM_THREADS": "1",
        "https_proxy": "http://proxy.example:3128",
        "no_proxy": "localhost,127.0.0.1,.example.org",
    }
    given = env(*SURROUNDINGS, 'member.config.env={"no_proxy": "*"}')
    assert given["no_proxy"] == "*"


@pytest.mark.parametrize("mode", ["hub", "member"])
def test_a_disruption_budget_refuses_evictions_if_asked_for(chart, mode):
    def budgets(*values):
        objects = chart.render(mode, *values)
        return [one["spec"] for one in objects if one["kind"] == "PodDisruptionBudget"]

    assert budgets() == []
    (budget,) = budgets("podDisruptionBudget.enabled=true")
    assert budget["maxUnavailable"] == 0
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_a_members_pods_reach_dns_and_the_hub_alone(chart):
    objects = chart.render("member")
    trainers = only(objects, "NetworkPolicy", "spes-trainers")["spec"]
    assert trainers["podSelector"]["matchLabels"] == {LABEL_MANAGED_BY: MANAGED_BY}
    assert trainers["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in trainers
    assert cidrs(trainers) == ["192.0.2.0/28"]
    agent = only(objects, "NetworkPolicy", "spes-member")["spec"]
    assert cidrs(agent) == ["192.0.2.0/28", "10.96.0.1/32", "10.20.0.10/32"]
    assert all(rule["to"] for rule in (*trainers["egress"], *agent["egress"]))


def cidrs(policy):
    peers = itertools.chain.from_iterable(rule["to"] for rule in policy["egress"])
    return [peer["ipBlock"]["cidr"] for peer in peers if "ipBlock" in peer]


def test_a_digest_takes_the_place_of_the_tag(chart):
    (container,) = pod_of(chart.render("member"), "spes-member")["containers"]
    assert container["image"].startswith("registry.uni-b.example.org/spes/operator@sha256:")


def test_monitoring_comes_with_the_operator_of_prometheus(chart):
    def kinds(**options):
        return {(one["kind"], one["metadata"]["name"]) for one in chart.render("hub", **options)}

    more = kinds(apis=[MONITORING]) - kinds()
    assert more == {
        ("ServiceMonitor", "spes-hub"),
        ("PodMonitor", "spes-sync"),
        ("PrometheusRule", "spes-hub"),
        ("ConfigMap", "spes-dashboard"),
    }


def test_rules_come_as_they_are_written(chart):
    rules = only(chart.render("member", apis=[MONITORING]), "PrometheusRule", "spes-member")
    assert rules["spec"] == yaml.safe_load((CHART / "files/alerts/member.yaml").read_text())


def test_series_keep_the_namespace_and_job_that_they_speak_of(chart):
    objects = chart.render("hub", apis=[MONITORING])
    (endpoint,) = only(objects, "ServiceMonitor", "spes-hub")["spec"]["endpoints"]
    assert endpoint["honorLabels"]
    monitor = only(objects, "PodMonitor", "spes-sync")
    assert monitor["metadata"]["namespace"] == "research"
    assert monitor["spec"]["jobLabel"] == LABEL_JOB
