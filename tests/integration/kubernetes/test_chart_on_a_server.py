"""What the chart renders, as a real API server judges it."""

import json
import subprocess
import uuid

import pytest
from builders.chart import EXAMPLES, NAMESPACES, Chart, built_helm, pod_of
from builders.rights import HUB, Account, make_account, make_namespaces

# A control plane starts within the first test.
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def chart() -> Chart:
    """Renders it."""
    return Chart(helm=built_helm())


def judge(plane, *objects):
    """Have the server check objects by its schemas and its rules; none is written."""
    document = {"apiVersion": "v1", "kind": "List", "items": objects}
    arguments = ("--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    return plane.kubectl("apply", *arguments, "-f", "-", stdin=json.dumps(document))


@pytest.mark.parametrize("mode", NAMESPACES)
def test_a_server_takes_every_object(chart, hub_control_plane, mode):
    make_namespaces(hub_control_plane, "spes-system", "spes", "research")
    make_account(hub_control_plane, Account(name="spes-member", namespace="spes"))
    make_account(hub_control_plane, HUB)
    objects = chart.render(mode)
    assert len(judge(hub_control_plane, *objects).splitlines()) == len(objects)


def test_a_server_refuses_a_field_that_it_does_not_know(chart, hub_control_plane):
    make_namespaces(hub_control_plane, "spes")
    (deployment,) = [one for one in chart.render("member") if one["kind"] == "Deployment"]
    deployment["spec"]["template"]["spec"]["hostNetwerk"] = True
    with pytest.raises(subprocess.CalledProcessError) as refusal:
        judge(hub_control_plane, deployment)
    assert "hostNetwerk" in refusal.value.stderr


@pytest.mark.parametrize("mode", ["hub", "member"])
def test_a_program_fits_the_restricted_pod_standard(chart, hub_control_plane, mode):
    name = f"restricted-{uuid.uuid4().hex[:6]}"
    metadata = {
        "name": name,
        "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
    }
    spec = pod_of(chart.render(mode), f"spes-{mode}")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": name}}
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": spec["serviceAccountName"], "namespace": name},
    }
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    for one in (made, account):
        hub_control_plane.kubectl("create", "-f", "-", stdin=json.dumps(one))
    judge(hub_control_plane, pod | {"spec": spec})
    spec["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(subprocess.CalledProcessError) as refusal:
        judge(hub_control_plane, pod | {"spec": spec})
    assert "restricted" in refusal.value.stderr


@pytest.mark.parametrize(
    ("mode", "commands"),
    [
        ("hub", ["spes invite NAME", "spes accept NAME", "kubectl -n research apply -f JOB.yaml"]),
        ("member", ["kubectl -n spes apply -f join-NAME.yaml", "helm -n spes test spes --logs"]),
        ("both", ["spes invite NAME", "kubectl -n spes apply -f join-NAME.yaml"]),
    ],
)
def test_the_notes_say_what_comes_next(chart, hub_control_plane, mode, commands):
    make_namespaces(hub_control_plane, "spes-system", "spes", "research")
    said = chart.command(
        "install",
        "--dry-run=server",
        "--take-ownership",  # of what other tests have installed there
        f"--kubeconfig={hub_control_plane.kubeconfig}",
        f"--namespace={NAMESPACES[mode]}",
        f"--values={EXAMPLES / mode}.yaml",
    )
    _, _, notes = said.partition("\nNOTES:\n")
    lines = [line.strip() for line in notes.splitlines()]
    assert [line for line in lines if line in commands] == commands
