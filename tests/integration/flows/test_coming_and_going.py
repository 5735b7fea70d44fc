"""Members come, are interrupted, fall silent and come back, over real API servers and trainers."""

from datetime import datetime, timedelta

import pytest
from builders.federation import now
from builders.live_objects import is_true, until
from builders.pods import evict
from builders.tiny_job import epoch
from spes_operator.names import member_namespace

pytestmark = pytest.mark.timeout(900)

LONG = {"unreachableAfterSeconds": 60, "reassignAfterSeconds": 300}
SHORT = {"unreachableAfterSeconds": 4, "reassignAfterSeconds": 10}


def test_a_new_member_is_taken_in_while_training_goes_on(stage):
    before, since, peer = stage.job(), now(), stage.peer("uni-b")
    stage.invite("uni-b")
    after = stage.wait_owners("uni-a", "uni-b")
    assert epoch(after) == epoch(before) + 1
    stage.wait_event("MemberJoined", since)
    counted = stage.wait_counted("uni-b", since)
    opened = stage.journal().first_expecting(peer, since)
    assert counted["round"] - opened["round"] <= 1
    first = stage.journal().since(since, "committed")[0]
    assert [one["peer"] for one in first["peers"]] == [stage.peer("uni-a")]
    stage.journal().check_owners()


def test_an_evicted_pod_is_replaced_and_keeps_its_experts(federation):
    federation.set_reassignment(LONG)
    before, since = federation.job(), now()
    pod, other = federation.trainer_pod("uni-b"), federation.trainer_pod("uni-a")
    evict(federation.site("uni-b").plane, federation.local_namespace("uni-b"), pod)
    journal, peer = federation.journal(), federation.peer("uni-b")
    until(lambda: any(entry["peer"] == peer for entry in journal.since(since, "leaving")))
    left = now()
    federation.wait_counted("uni-a", left)  # alone, in the meantime
    assert federation.trainer_pod("uni-b") != pod
    federation.wait_counted("uni-b", left)
    after = federation.wait_owners("uni-a", "uni-b")
    assert epoch(after) == epoch(before)
    assert federation.trainer_pod("uni-a") == other  # and pods of ours never restart in place


def test_a_node_that_is_taken_away_gives_its_experts_at_once(federation):
    federation.set_reassignment(LONG)
    before, since = federation.job(), now()
    site = federation.site("uni-b")
    site.kubelet.shut_down(site.node)
    after = federation.wait_owners("uni-a")
    assert epoch(after) == epoch(before) + 1
    federation.wait_event("ExpertsMoved", since)
    federation.wait_counted("uni-a", now())
    back = now()
    site.kubelet.start(site.node)
    federation.wait_owners("uni-a", "uni-b")
    federation.wait_event("MemberReturned", back)


def test_a_lost_node_blocks_nobody(federation):
    federation.set_reassignment(SHORT)
    before, since = federation.job(), now()
    site = federation.site("uni-b")
    site.kubelet.lose(site.node)
    after = federation.wait_owners("uni-a")
    assert epoch(after) == epoch(before) + 1
    federation.wait_event("ExpertsMoved", since)
    federation.wait_counted("uni-a", now())
    site.kubelet.start(site.node)
    federation.wait_owners("uni-a", "uni-b")


def test_a_drained_member_hands_over_and_its_trainer_ends(federation):
    federation.set_reassignment(LONG)
    before = federation.job()
    federation.spes("drain", federation.member("uni-b"))
    after = federation.wait_owners("uni-a")
    assert epoch(after) == epoch(before) + 1
    federation.objects.wait(
        "MemberCluster", "", federation.member("uni-b"), lambda member: is_true(member, "Drained")
    )
    until(lambda: federation.local_jobs("uni-b") == [])
    federation.cordon("uni-b", unschedulable=False)
    federation.wait_owners("uni-a", "uni-b")


def test_a_silent_member_loses_its_experts_and_nothing_late_of_it_counts(federation):
    federation.set_reassignment(SHORT)
    before, since = federation.job(), now()
    site, namespace = federation.site("uni-b"), federation.local_namespace("uni-b")
    pod, peer = federation.trainer_pod("uni-b"), federation.peer("uni-b")
    federation.agents["uni-b"].freeze()
    site.kubelet.pause(namespace, pod)
    after = federation.wait_owners("uni-a")
    assert epoch(after) == epoch(before) + 1
    moved = federation.wait_event("ExpertsMoved", since)
    assert moved["message"]
    federation.wait_counted("uni-a", now())
    back = now()
    site.kubelet.resume(namespace, pod)
    federation.agents["uni-b"].thaw()
    federation.wait_owners("uni-a", "uni-b")
    federation.wait_counted("uni-b", back)
    expected = federation.journal().first_expecting(peer, back)
    late = [
        entry
        for entry in federation.journal().since(back, "push")
        if entry["peer"] == peer and entry["round"] < expected["round"]
    ]
    assert all(entry["verdict"] != "VERIFIED" for entry in late), late
    assert federation.trainer_pod("uni-b") == pod


def test_an_agent_that_is_killed_changes_nothing(federation):
    federation.set_reassignment(LONG)
    before, jobs = federation.job(), uids(federation.local_jobs("uni-b"))
    federation.agents["uni-b"].kill()
    federation.wait_counted("uni-b", now())
    federation.agents["uni-b"].start()
    since = now() + timedelta(seconds=2)
    federation.objects.wait(
        "Lease",
        member_namespace(federation.member("uni-b")),
        "heartbeat",
        lambda lease: renewed(lease) > since,
        seconds=240,
    )
    assert uids(federation.local_jobs("uni-b")) == jobs
    assert epoch(federation.job()) == epoch(before)


def uids(objects):
    return {obj["metadata"]["uid"] for obj in objects}


def renewed(lease):
    return datetime.fromisoformat(lease["spec"]["renewTime"])
