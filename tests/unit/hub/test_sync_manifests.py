"""The sync server's objects: who may reach it, what goes with the job, what its pod says."""

import re

import pytest
from builders.hub_world import job_document
from spes_api.job import SpesJob
from spes_operator.hub.sync_manifests import (
    Exposure,
    PodSettings,
    address_of,
    says_the_same,
    service,
    stateful_set,
    volume_claim,
)
from spes_operator.hub.sync_pod import pod_seen
from spes_operator.k8s.resources import RESOURCES

UID = "0123456789ab"
NODE_PORT = Exposure(service_type="NodePort", host="hub.example")


def make_job(name="moe-tiny", uid=UID, **spec):
    document = job_document(**spec)
    document["metadata"] |= {"name": name, "uid": uid}
    document["status"] = {"images": {"trainer": "t", "sync": "s"}}
    return SpesJob.model_validate(document)


def pod_of(job, **settings):
    return stateful_set(job, PodSettings(**settings))["spec"]["template"]["spec"]


@pytest.mark.parametrize("name", ["7b", "a" * 40, "7" * 40])
def test_any_name_of_a_job_gives_names_that_an_api_server_takes(name):
    """A Service's begins with a letter; a StatefulSet's is a label with a hash behind it."""
    job = make_job(name)
    made = service(job, NODE_PORT)["metadata"]["name"]
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", made)
    assert len(made) <= 63
    server = stateful_set(job, PodSettings())
    assert server["spec"]["serviceName"] == made
    assert len(server["metadata"]["name"]) <= 52
    assert len(volume_claim(job)["metadata"]["name"]) <= 63


def test_only_the_peers_port_leaves_the_cluster():
    (port,) = service(make_job(), NODE_PORT)["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (7443, 7443)


@pytest.mark.parametrize(
    ("exposure", "found", "address"),
    [
        (NODE_PORT, {"spec": {"ports": [{"nodePort": 31000}]}}, "hub.example:31000"),
        (NODE_PORT, {"spec": {"ports": [{}]}}, "None"),
        (
            Exposure(service_type="LoadBalancer"),
            {"status": {"loadBalancer": {"ingress": [{"ip": "2001:db8::1"}]}}},
            "[2001:db8::1]:7443",
        ),
        (
            Exposure(service_type="LoadBalancer"),
            {"status": {"loadBalancer": {"ingress": [{"hostname": "lb.example"}]}}},
            "lb.example:7443",
        ),
        (Exposure(service_type="LoadBalancer"), {"status": {"loadBalancer": {}}}, "None"),
        (
            Exposure(service_type="ClusterIP", host="sync.example", port=443),
            {},
            "01234567.sync.example:443",
        ),
    ],
    ids=["node", "node soon", "address", "name", "address soon", "name asked for"],
)
def test_the_address_follows_the_exposure(exposure, found, address):
    assert str(address_of(found, make_job(), exposure)) == address


@pytest.mark.parametrize(("reclaim", "owners"), [("Keep", 0), ("Delete", 1)])
def test_the_volume_goes_with_the_job_if_it_says_so(reclaim, owners):
    claim = volume_claim(make_job(checkpoint={"reclaim": reclaim}))
    assert len(claim["metadata"].get("ownerReferences", ())) == owners


def test_a_namesake_has_another_volume():
    names = {volume_claim(make_job(uid=uid))["metadata"]["name"] for uid in (UID, "fedcba987654")}
    assert names == {"moe-tiny-01234567", "moe-tiny-fedcba98"}


def test_the_server_gets_no_rights_and_no_token():
    pod = pod_of(make_job())
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_peers_of_a_server_that_ends_have_time_for_their_last_push():
    pod = pod_of(make_job())
    linger = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert 0 < linger < pod["terminationGracePeriodSeconds"]


def test_an_issuers_certificate_comes_beside_the_hubs_authority():
    (_, tls) = pod_of(make_job(), has_issuer=True)["volumes"]
    secrets = [source["secret"]["name"] for source in tls["projected"]["sources"]]
    assert secrets == ["moe-tiny-sync-tls", "moe-tiny-sync-client-ca"]


def test_a_newer_chart_changes_no_pod_that_runs():
    made = stateful_set(make_job(), PodSettings(requests={"cpu": "1"}))
    assert made["spec"]["updateStrategy"] == {"type": "OnDelete"}
    other = stateful_set(make_job(), PodSettings(requests={"cpu": "2"}))
    assert says_the_same(made, made)
    assert not says_the_same(other, made)


def test_names_of_the_longest_job_fit():
    job = make_job("a" * 40)
    objects = (service(job, NODE_PORT), volume_claim(job), stateful_set(job, PodSettings()))
    for made in objects:
        assert made["kind"] in RESOURCES
        assert len(made["metadata"]["name"]) <= 52  # room for a StatefulSet's own suffixes


def waiting(reason, message=""):
    return {"containerStatuses": [{"state": {"waiting": {"reason": reason, "message": message}}}]}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({}, "is starting"),
        (waiting("ContainerCreating"), "is starting"),
        (waiting("ErrImagePull", "no such image"), "ErrImagePull no such image"),
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "message": "0/3 nodes"},
                ]
            },
            "finds no node: 0/3 nodes",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        "lastState": {"terminated": {"exitCode": 2, "message": "disk\nfull"}},
                    }
                ]
            },
            "ended with 2: disk full",
        ),
    ],
    ids=["new", "creating", "image", "no node", "crash"],
)
def test_a_pod_that_is_not_ready_says_why(status, said):
    seen = pod_seen({"metadata": {}, "status": status})
    assert not seen.ready
    assert said in seen.message


def test_a_pod_that_ends_is_not_ready():
    ready = {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
    assert pod_seen({"metadata": {}, "status": ready}).ready
    assert not pod_seen({"metadata": {"deletionTimestamp": "now"}, "status": ready}).ready
    assert not pod_seen(None).ready
