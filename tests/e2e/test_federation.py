"""A hub and two members, each a cluster of its own: install, train, lose, cut, return, delete.

The tests build on each other, in this order. Whatever is asserted is what kubectl or `spes` shows.
"""

import pytest
from builders.kind_federation import (
    HUB_NAMESPACE,
    JOB_NAMESPACE,
    MEMBER_NAMESPACE,
    is_ready,
    owners,
    round_of,
    wait_until,
)
from builders.kind_job import NAME, REASSIGN_SECONDS, make_job

_SLOW = 600.0
_A, _B = "uni-a", "uni-b"


def test_hub_and_members_are_installed_by_the_chart(federation, table):
    with table.step("install", "hub: cluster"):
        federation.make_hub()
    with table.step("install", "hub: helm install to Ready"):
        federation.install_hub()
    for name, workers in ((_A, 0), (_B, 1)):
        with table.step("install", f"{name}: cluster"):
            federation.add_member(name, workers=workers)
        with table.step("install", f"{name}: invite, helm install, accept, to Ready"):
            federation.install_member(name)
            wait_until(
                lambda name=name: is_ready(federation.hub.get("membercluster", name)),
                lambda: federation.hub.kubectl("get", "memberclusters", "-o", "yaml"),
                seconds=_SLOW,
            )
    shown = federation.hub.kubectl("get", "memberclusters")
    assert shown.count("True") == 4, shown  # ACCEPTED and READY of each


def test_helm_test_says_that_the_member_reaches_the_hub(federation):
    said = federation.helm(
        federation.members[_A], "test", "spes", "--namespace", MEMBER_NAMESPACE, "--logs"
    )
    assert "Succeeded" in said


def test_both_members_train_and_rounds_advance(federation, table):
    with table.step("train", "kubectl apply to first round"):
        federation.submit(make_job())
        federation.wait_job(NAME, lambda job: round_of(job) >= 1, seconds=_SLOW)
    with table.step("train", "both members own experts"):
        federation.wait_owners(NAME, _A, _B, seconds=_SLOW)
    with table.step("train", "three more rounds") as words:
        job = federation.wait_rounds(NAME, 3)
        words.append(f"round {round_of(job)}, loss {job['status']['loss']}")
    assert is_ready(job)


def test_experts_of_a_drained_node_move_and_come_back(federation, table):
    node = federation.members[_B].nodes[-1]
    with table.step("preempt", "node drained to experts owned again"):
        federation.members[_B].kubectl(
            *("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s"),
            seconds=180,
        )
        federation.wait_owners(NAME, _A)
    federation.wait_rounds(NAME, 1)
    with table.step("preempt", "uncordon to experts owned by both"):
        federation.members[_B].kubectl("uncordon", node)
        federation.wait_owners(NAME, _A, _B)
    federation.wait_rounds(NAME, 1)


def test_a_member_that_is_cut_off_loses_its_experts_and_gets_some_when_it_returns(
    federation, table
):
    epoch = federation.job(NAME)["status"]["ownershipEpoch"]
    with table.step("cut", "cut to experts owned again") as words:
        words.append(f"reassignAfterSeconds is {REASSIGN_SECONDS}")
        federation.cut(_B)
        federation.wait_owners(NAME, _A, seconds=_SLOW)
    shown = federation.hub.kubectl("get", "membercluster", _B)
    assert "Unknown" in shown, shown
    federation.wait_rounds(NAME, 2)
    with table.step("cut", "healed to experts owned by both"):
        federation.heal(_B)
        job = federation.wait_owners(NAME, _A, _B, seconds=_SLOW)
    assert job["status"]["ownershipEpoch"] > epoch
    federation.wait_rounds(NAME, 2)


@pytest.mark.rest
def test_a_deleted_trainer_pod_is_replaced(federation, table):
    pod = federation.wait_trainer(_A)
    with table.step("pod deleted", "to the next one ready"):
        federation.members[_A].kubectl("-n", MEMBER_NAMESPACE, "delete", "pod", pod)
        federation.wait_trainer(_A, other_than=pod)
    federation.wait_owners(NAME, _A, _B)
    federation.wait_rounds(NAME, 2)


def test_a_deleted_job_leaves_no_pods(federation, table):
    loss = federation.job(NAME)["status"]["loss"]
    table.note("train", "held-out loss at the end", f"{loss}")
    with table.step("delete", "kubectl delete to nothing left"):
        federation.hub.kubectl("-n", JOB_NAMESPACE, "delete", "spesjob", NAME)
        for member in federation.members.values():
            wait_until(
                lambda member=member: not member.get("-n", MEMBER_NAMESPACE, "jobs")["items"],
                lambda member=member: member.kubectl("-n", MEMBER_NAMESPACE, "get", "jobs,pods"),
                seconds=_SLOW,
            )
        wait_until(
            lambda: not federation.hub.get("-n", JOB_NAMESPACE, "pods")["items"],
            lambda: federation.hub.kubectl("-n", JOB_NAMESPACE, "get", "pods"),
            seconds=_SLOW,
        )
    assert owners({}) == set()
    assert HUB_NAMESPACE in federation.hub.kubectl("get", "namespaces")
