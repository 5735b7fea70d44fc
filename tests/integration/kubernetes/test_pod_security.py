"""Every pod of SPES fits the "restricted" pod security standard, as the API server judges it."""

import asyncio
import json
import uuid
from pathlib import Path

import pytest
import yaml
from builders.rights import apply
from spes_api.job import SpesJob
from spes_operator.errors import ForbiddenError
from spes_operator.hub.sync_manifests import PodSettings, stateful_set
from spes_operator.k8s.connection import Connection, Request

ROOT = Path(__file__).parents[3]
ENFORCE = "pod-security.kubernetes.io/enforce"


@pytest.fixture(scope="module")
def restricted(hub_control_plane) -> str:
    """A namespace that takes restricted pods alone."""
    name = f"restricted-{uuid.uuid4().hex[:6]}"
    metadata = {"name": name, "labels": {ENFORCE: "restricted"}}
    account = {"name": "default", "namespace": name}
    apply(
        hub_control_plane,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account},
    )
    return name


def trainer_template(name):
    job = yaml.safe_load((ROOT / f"tests/golden/member/{name}.yaml").read_text())
    spec = job["spec"]["template"]["spec"]
    return spec | {"priorityClassName": "", "runtimeClassName": None}  # of clusters that have them


def sync_template(**settings):
    document = yaml.safe_load((ROOT / "examples/moe-tiny.yaml").read_text())
    document["metadata"] |= {"namespace": "research", "uid": "0b5c6c1f-1"}
    document["status"] = {"images": {"sync": "sync:1", "trainer": "trainer:1"}}
    pod = PodSettings(**settings)
    return stateful_set(SpesJob.model_validate(document), pod)["spec"]["template"]["spec"]


def ask(plane, namespace, spec):
    """Have the API server judge a pod; it is not made."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": namespace},
        "spec": json.loads(json.dumps(spec)),
    }

    async def once():
        connection = await Connection.open(plane.kubeconfig)
        try:
            path = f"/api/v1/namespaces/{namespace}/pods"
            query = {"dryRun": "All", "fieldValidation": "Strict"}
            await connection.send(Request(method="POST", path=path, query=query, body=body))
        finally:
            await connection.close()

    asyncio.run(once())


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(trainer_template("job-plain"), id="trainer"),
        pytest.param(trainer_template("job-full"), id="trainer with everything"),
        pytest.param(sync_template(), id="sync server"),
        pytest.param(sync_template(has_issuer=True), id="sync server with an issuer"),
    ],
)
def test_pod_is_taken_where_only_restricted_ones_are(hub_control_plane, restricted, spec):
    ask(hub_control_plane, restricted, spec)


@pytest.mark.parametrize("key", ["runAsNonRoot", "seccompProfile"])
def test_a_pod_of_ours_with_less_is_refused(hub_control_plane, restricted, key):
    spec = sync_template()
    less = {name: value for name, value in spec["securityContext"].items() if name != key}
    with pytest.raises(ForbiddenError, match="violates PodSecurity"):
        ask(hub_control_plane, restricted, spec | {"securityContext": less})


def test_no_pod_of_ours_holds_a_token_of_its_cluster():
    for spec in (trainer_template("job-plain"), trainer_template("job-full"), sync_template()):
        assert spec["automountServiceAccountToken"] is False
        assert "serviceAccountToken" not in json.dumps(spec)
