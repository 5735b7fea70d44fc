"""While training goes on, no secret is anywhere but in Secrets and in files."""

import json
import os

import pytest
from builders.leaks import leaks, processes_below, words_of_secrets
from builders.rights import HUB_NAMESPACE
from spes_operator.names import (
    HUB_CA_SECRET,
    HUB_CREDENTIAL_SECRET,
    JOIN_SECRET,
    member_namespace,
)

pytestmark = pytest.mark.timeout(900)

KINDS = ("SpesJob", "MemberCluster", "MemberReport", "TrainerAssignment", "ConfigMap", "Event")


def test_no_secret_is_in_logs_events_or_arguments(federation):
    words = words_of_secrets(secrets_of(federation))
    origins = " ".join(words.values())
    for name in (HUB_CA_SECRET, HUB_CREDENTIAL_SECRET, JOIN_SECRET, "-join:token", "tls.key"):
        assert name in origins
    texts = {**logs_of(federation), **objects_of(federation), **dict(processes_below(os.getpid()))}
    assert all(texts[name] for name in logs_of(federation))
    assert leaks(words, texts) == []


def secrets_of(federation):
    found = federation.objects.list("Secret", HUB_NAMESPACE)
    found += federation.objects.list("Secret", federation.namespace)
    for site in federation.agents:
        found += federation.objects.list("Secret", member_namespace(federation.member(site)))
        objects = federation.site(site).objects
        found += objects.list("Secret", federation.local_namespace(site))
    return found


def logs_of(federation):
    logs = {"hub": federation.hub.log()}
    server = federation.objects.list("Pod", federation.namespace)[0]["metadata"]["name"]
    logs["sync server"] = federation.bed.hub.kubelet.output(federation.namespace, server)
    for site, agent in federation.agents.items():
        logs[f"agent {site}"] = agent.log()
        pod, namespace = federation.trainer_pod(site), federation.local_namespace(site)
        logs[f"trainer {site}"] = federation.site(site).kubelet.output(namespace, pod)
    return logs


def objects_of(federation):
    clusters = {"hub": federation.objects} | {
        site: federation.site(site).objects for site in federation.agents
    }
    kinds = dict.fromkeys(clusters, ("Event", "Job", "Pod", "ConfigMap")) | {"hub": KINDS}
    return {
        f"{kind} in {place}": json.dumps(objects.list(kind))
        for place, objects in clusters.items()
        for kind in kinds[place]
    }
