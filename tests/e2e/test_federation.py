"""A hub and two members, each a cluster of its own: install, train, lose, cut, return, delete.

The tests build on each other, in this order. Whatever is asserted is what kubectl or `spes` shows.
"""

import pytest
from builders.kind_installation import HUB_NAMESPACE, JOB_NAMESPACE, MEMBER_NAMESPACE
from builders.kind_job import NAME, REASSIGN_SECONDS, UNTRAINED_LOSS, load_and_run, make_job
from builders.kind_objects import condition, is_ready, message, reason, round_of, wait_until

_SLOW = 600.0
_A, _B, _C = "uni-a", "uni-b", "uni-c"


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


def test_helm_test_says_that_all_is_as_it_should_be(federation):
    for cluster, namespace in federation.installed():
        said = federation.helm(cluster, "test", "spes", "--namespace", namespace, "--logs")
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


def test_a_trainer_reaches_the_hub_and_nobody_else(federation):
    hub = federation.hub.address()
    service = federation.hub.get("-n", JOB_NAMESPACE, "service", f"sync-{NAME}")
    assert federation.reaches(_A, hub, service["spec"]["ports"][0]["nodePort"])
    own_api_server = federation.members[_A].get("service", "kubernetes")["spec"]["clusterIP"]
    assert not federation.reaches(_A, own_api_server, 443)
    assert not federation.reaches(_A, federation.members[_B].address(), 6443)


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


@pytest.mark.rest
def test_a_hub_that_dies_during_a_move_finishes_it(federation, table):
    member = federation.members[_B]
    with table.step("hub killed", "node cordoned and hub killed, to experts owned again"):
        member.kubectl("cordon", member.nodes[-1])
        federation.kill(federation.hub, HUB_NAMESPACE, "app.kubernetes.io/component=hub")
        federation.wait_owners(NAME, _A)
    federation.wait_rounds(NAME, 1)
    member.kubectl("uncordon", member.nodes[-1])
    federation.wait_owners(NAME, _A, _B)


@pytest.mark.rest
def test_a_sync_server_that_dies_goes_on_from_its_volume(federation, table):
    before = federation.wait_rounds(NAME, 1)
    with table.step("sync server killed", "to the second round after it") as words:
        federation.kill(federation.hub, JOB_NAMESPACE, "spes.dev/component=sync")
        after = federation.wait_rounds(NAME, 2)
        words.append(f"round {round_of(before)}, then {round_of(after)}")
    federation.wait_owners(NAME, _A, _B)


@pytest.mark.rest
def test_a_drained_member_is_empty_until_it_is_let_back_in(federation, table):
    with table.step("drain", "spes drain to Drained"):
        federation.spes("drain", _B)
        federation.hub.kubectl(
            *("wait", "--for=condition=Drained", f"membercluster/{_B}", "--timeout=300s"),
            seconds=_SLOW,
        )
    federation.wait_owners(NAME, _A)
    assert federation.trainer(_B) is None
    federation.change("membercluster", _B, {"unschedulable": False})
    with table.step("drain", "let back in to experts owned by both"):
        federation.wait_owners(NAME, _A, _B, seconds=_SLOW)


@pytest.mark.rest
def test_a_suspended_job_runs_nothing_and_goes_on_where_it_was(federation, table):
    with table.step("suspend", "to no trainers"):
        federation.change("spesjob", NAME, {"suspend": True})
        for name in federation.members:
            federation.wait_no_trainers(name)
    before = federation.wait_job(NAME, lambda job: condition(job, "Suspended") == "True")
    federation.change("spesjob", NAME, {"suspend": False})
    with table.step("suspend", "resumed to the next round"):
        federation.wait_job(NAME, lambda job: round_of(job) > round_of(before), seconds=_SLOW)
    federation.wait_owners(NAME, _A, _B)


@pytest.mark.rest
def test_an_upgrade_of_the_chart_restarts_no_trainer(federation, table):
    trainers = {name: federation.wait_trainer(name) for name in federation.members}
    with table.step("upgrade", "helm upgrade of hub and members"):
        federation.install_hub(limits={"memory": "600Mi"})
        for name in federation.members:
            federation.install_member_chart(name, limits={"memory": "600Mi"})
    federation.wait_rounds(NAME, 3)
    assert {name: federation.wait_trainer(name) for name in federation.members} == trainers


@pytest.mark.rest
def test_a_third_member_joins_a_running_job_and_is_shut_out_again(federation, table):
    with table.step("third member", "cluster, invite, install, accept"):
        federation.add_member(_C)
        federation.install_member(_C)
    with table.step("third member", "accepted to experts owned"):
        federation.wait_owners(NAME, _A, _B, _C, seconds=_SLOW)
    federation.wait_rounds(NAME, 2)
    with table.step("third member", "spes revoke to experts owned by the others"):
        federation.spes("revoke", _C)
        federation.wait_owners(NAME, _A, _B, seconds=_SLOW)
    federation.remove_member(_C)
    federation.wait_rounds(NAME, 2)


@pytest.mark.rest
def test_a_job_that_wants_more_members_than_there_are_says_so(federation):
    federation.submit(make_job("crowd", members={"min": 4, "max": 4}))
    job = federation.wait_job("crowd", lambda job: reason(job, "Ready") == "NotEnoughMembers")
    assert "4" in message(job, "Ready")
    federation.hub.kubectl("-n", JOB_NAMESPACE, "delete", "spesjob", "crowd")


def test_the_checkpoint_loads_and_the_loss_has_fallen(federation, table, tmp_path):
    job = federation.job(NAME)
    with table.step("checkpoint", "export and load") as words:
        logits = load_and_run(federation.checkpoint(NAME, tmp_path))
        words.append(f"round {round_of(job)}, held-out loss {job['status']['loss']} nats")
    assert logits.isfinite().all()
    assert float(job["status"]["loss"]) < UNTRAINED_LOSS - 1.5


def test_memory_is_what_the_chart_grants(federation, table):
    for where, container in (("hub", "hub"), ("hub", "sync"), (_A, "member"), (_A, "trainer")):
        cluster = federation.hub if where == "hub" else federation.members[where]
        used = cluster.memory_of(container)
        table.note("memory", f"{container} in {where}", f"{used / 1e6:.0f} MB")
        if container in ("hub", "member"):
            assert used < 512 * 2**20


@pytest.mark.rest
def test_trainers_of_a_member_that_is_away_stop_when_it_returns(federation, table):
    federation.cut(_B)
    federation.hub.kubectl("-n", JOB_NAMESPACE, "delete", "spesjob", NAME)
    federation.wait_no_trainers(_A)
    assert federation.trainer(_B) is not None
    with table.step("delete while away", "healed to no trainers"):
        federation.heal(_B)
        federation.wait_no_trainers(_B)
    federation.submit(make_job())
    federation.wait_owners(NAME, _A, _B, seconds=_SLOW)


def test_a_deleted_job_leaves_no_pods(federation, table):
    with table.step("delete", "kubectl delete to nothing left"):
        federation.hub.kubectl("-n", JOB_NAMESPACE, "delete", "spesjob", NAME)
        for name in federation.members:
            federation.wait_no_trainers(name)
        wait_until(
            lambda: not federation.hub.get("-n", JOB_NAMESPACE, "pods")["items"],
            lambda: federation.hub.kubectl("-n", JOB_NAMESPACE, "get", "pods"),
            seconds=_SLOW,
        )


def test_nothing_is_stuck_after_helm_uninstall(federation, table):
    with table.step("uninstall", "everywhere, to namespaces deleted"):
        for cluster, namespace in federation.installed():
            federation.helm(cluster, "uninstall", "spes", "--namespace", namespace, "--wait")
            cluster.kubectl(
                "delete",
                "namespace",
                namespace,
                "--ignore-not-found",
                "--timeout=240s",
                seconds=_SLOW,
            )
        federation.hub.kubectl(
            "delete", "namespace", JOB_NAMESPACE, "--timeout=240s", seconds=_SLOW
        )
    assert "spesjobs" in federation.hub.kubectl("get", "crds")  # kept, as the chart says
