"""An agent with its real rights between two real API servers."""

import base64
import json
import shutil

import pytest
import yaml
from builders.live_objects import LiveObjects, is_true, until
from spes_operator.errors import UnauthorizedError

# A control plane starts within the first test, and a busy machine takes its time.
pytestmark = pytest.mark.timeout(240)

READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def ended(code, *conditions):
    state = {"terminated": {"exitCode": code, "message": "the last words"}}
    return {
        "phase": "Failed",
        "conditions": list(conditions),
        "containerStatuses": [
            {
                "name": "trainer",
                "image": "",
                "imageID": "",
                "ready": False,
                "restartCount": 0,
                "state": state,
            }
        ],
    }


def waiting(reason, message):
    state = {"waiting": {"reason": reason, "message": message}}
    (status,) = ended(0)["containerStatuses"]
    return {"phase": "Pending", "containerStatuses": [status | {"state": state}]}


def refuses(hub, namespace):
    try:
        hub.find("MemberReport", namespace, "report")
    except UnauthorizedError:
        return True
    return False


def versions(objects):
    return {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in objects}


def generations(objects):
    """Unlike versions, they do not tell of a status that a controller writes."""
    return {one["metadata"]["uid"]: one["metadata"]["generation"] for one in objects}


def test_assignment_becomes_a_job_and_goes_again(member):
    member.assign()
    member.wait_job()
    member.set_pod_status(member.wait_pod(), **READY)
    member.wait_condition("PodReady", "SessionLive")
    member.assign(desired="Stop")
    member.on_hub.wait(
        "TrainerAssignment", member.at_hub, "tiny-a", lambda item: is_true(item, "Drained")
    )
    assert (member.jobs(), member.pods()) == ([], [])


def test_volume_lives_as_long_as_its_assignment(world):
    world.configure(workVolume={"type": "pvc", "size": "1Gi"})
    world.accept()
    world.agent.start()
    world.assign()
    first = world.wait_job()
    claim = world.here.get("PersistentVolumeClaim", world.namespace, "tiny-a-work")
    world.assign(templateHash="h2")
    until(
        lambda: generations(world.jobs()).keys() not in (set(), generations([first]).keys()),
        world.agent.log,
    )
    world.wait_pod()
    again = world.here.get("PersistentVolumeClaim", world.namespace, "tiny-a-work")
    assert again["metadata"]["uid"] == claim["metadata"]["uid"]
    world.on_hub.delete("TrainerAssignment", world.at_hub, "tiny-a")

    def is_going():
        found = world.here.find("PersistentVolumeClaim", world.namespace, "tiny-a-work")
        return found is None or "deletionTimestamp" in found["metadata"]

    until(is_going, world.agent.log)


def test_member_reports_before_it_is_accepted_and_works_after(world):
    world.agent.start()
    report = world.report()
    assert report["clusterID"] == world.here.get("Namespace", "", "kube-system")["metadata"]["uid"]
    assert report["kubernetesVersion"].startswith("v1.")
    assert [slot["name"] for slot in report["slots"]] == ["a"]
    assert "credential" not in report
    world.assign()
    world.accept()
    world.wait_job()
    world.on_hub.wait("Lease", world.at_hub, "heartbeat", lambda lease: lease["spec"]["renewTime"])


def test_token_is_renewed_and_kept_where_a_restart_finds_it(member, tmp_path):
    reported = member.on_hub.wait(
        "MemberReport",
        member.at_hub,
        "report",
        lambda item: item.get("status", {}).get("credential", {}).get("persisted"),
    )
    assert reported["status"]["credential"]["expiresAt"] > "2026"
    member.here.get("Secret", member.namespace, "spes-hub-credential")
    member.agent.kill()
    shutil.rmtree(tmp_path / "state")
    invitation = yaml.safe_load(member.invitation.read_text())
    invitation["users"][0]["user"]["token"] = "used-up"
    member.invitation.write_text(yaml.safe_dump(invitation))
    member.agent.start()
    member.assign()
    member.wait_job()
    log = member.agent.log()
    secret = (tmp_path / "state" / "token").read_text()
    assert secret not in log


def test_member_that_was_off_for_too_long_is_told_what_to_do(member, tmp_path):
    until(lambda: "credential renewed" in member.agent.log(), member.agent.log)
    member.agent.kill()
    member.hub.kubectl("delete", "serviceaccount", "agent", "-n", member.at_hub)
    member.hub.kubectl("create", "serviceaccount", "agent", "-n", member.at_hub)
    for kubeconfig in (tmp_path / "state" / "hub.kubeconfig", member.invitation):
        with LiveObjects(kubeconfig) as with_old_token:  # it is cached for some seconds
            until(lambda api=with_old_token: refuses(api, member.at_hub))
    member.agent.start()

    def told():
        return [
            event["message"]
            for event in member.here.list("Event", member.namespace)
            if event["reason"] == "HubCredentialRefused"
        ]

    until(lambda: bool(told()), member.agent.log)
    assert f"spes invite {member.name} --renew" in told()[0]
    member.invite()
    member.assign()
    member.wait_job()
    assert len(told()) == 1


def test_invitation_that_is_none_ends_the_agent_as_a_persons_mistake(world):
    """Its cluster starts it again, ever more seldom."""
    world.invitation.write_text("{")
    world.agent.start()
    until(lambda: not world.agent.is_running(), world.agent.log)
    assert world.agent.stop() == 2
    assert "mount the Secret of the file that `spes invite` wrote" in world.agent.log()


def test_hub_with_another_ca_is_reached_once_the_invitation_has_it(world):
    """As the same cluster: its UID stays."""
    document = yaml.safe_load(world.invitation.read_text())
    certificate = base64.b64encode(world.member.ca_file.read_bytes()).decode()
    document["clusters"][0]["cluster"]["certificate-authority-data"] = certificate
    document["clusters"][0]["cluster"].pop("certificate-authority", None)
    world.invitation.write_text(yaml.safe_dump(document))
    world.accept()
    world.agent.start()
    until(lambda: "credential not renewed" in world.agent.log(), world.agent.log)
    assert world.on_hub.find("MemberReport", world.at_hub, "report") is None
    world.invite()
    report = world.report()
    assert report["clusterID"] == world.here.get("Namespace", "", "kube-system")["metadata"]["uid"]
    world.assign()
    world.wait_job()
    assert world.agent.is_running()


def test_job_whose_assignment_vanished_meanwhile_is_removed(member):
    member.assign()
    member.wait_job()
    member.wait_condition("Applied", "AsExpected")
    assert member.agent.stop() == 0
    member.on_hub.delete("TrainerAssignment", member.at_hub, "tiny-a")
    member.assign(jobUID="uid-2")
    member.agent.start()
    until(
        lambda: (
            [job["metadata"]["labels"]["spes.dev/job-uid"] for job in member.jobs()] == ["uid-2"]
        ),
        member.agent.log,
    )


def test_killed_agent_makes_no_second_job_and_writes_nothing(member):
    member.assign()
    member.wait_job()
    member.set_pod_status(member.wait_pod(), **READY)
    member.wait_condition("PodReady", "SessionLive")
    member.agent.kill()
    jobs = generations(member.jobs())
    secrets = versions(member.here.list("Secret", member.namespace, {"spes.dev/secret": "join"}))
    assignments = versions(member.on_hub.list("TrainerAssignment", member.at_hub))
    starts = member.agent.log().count("credential renewed")
    member.agent.start()
    until(lambda: member.agent.log().count("credential renewed") > starts, member.agent.log)
    lease = member.on_hub.get("Lease", member.at_hub, "heartbeat")
    member.on_hub.wait(
        "Lease", member.at_hub, "heartbeat", lambda item: item["spec"] != lease["spec"]
    )
    assert generations(member.jobs()) == jobs
    assert (
        versions(member.here.list("Secret", member.namespace, {"spes.dev/secret": "join"}))
        == secrets
    )
    assert versions(member.on_hub.list("TrainerAssignment", member.at_hub)) == assignments


def test_exceeded_quota_is_a_condition_and_reported(member):
    member.here.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"namespace": member.namespace, "name": "gpus"},
            "spec": {"hard": {"pods": "0"}},
        }
    )
    member.here.wait(
        "ResourceQuota", member.namespace, "gpus", lambda quota: quota["status"].get("hard")
    )
    member.assign()
    found = member.wait_condition("PodReady", "QuotaExceeded")
    assert "exceeded quota: gpus" in found["message"]
    until(lambda: member.report().get("quotas") is not None, member.agent.log)
    (quota,) = member.report()["quotas"]
    assert (quota["name"], quota["hard"]) == ("gpus", {"pods": "0"})


def test_what_the_member_does_not_allow_is_vetoed(member):
    member.assign(template={"image": "miner", "queueName": "q"})
    found = member.wait_condition("Applied", "VetoedByMember")
    assert "image is not allowed here (got 'miner'" in found["message"]
    events = member.on_hub.list("Event", member.at_hub)
    assert [event["reason"] for event in events] == ["AssignmentRefused"]
    assert member.jobs() == []


def test_pods_facts_reach_the_hub(member):
    member.assign()
    first = member.wait_pod()
    member.set_pod_status(first, **waiting("ImagePullBackOff", "no such image"))
    found = member.wait_condition("PodReady", "ImagePullFailed")
    assert found["message"] == "ImagePullBackOff: no such image"
    taken = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    member.set_pod_status(first, **ended(137, taken))
    member.wait_condition("Degraded", "PodPreempted")
    until(lambda: len(member.pods()) == 2, member.agent.log)
    second = next(
        pod for pod in member.pods() if pod["metadata"]["uid"] != first["metadata"]["uid"]
    )
    member.set_pod_status(second, **ended(75))
    until(lambda: len(member.pods()) == 3, member.agent.log)
    third = max(member.pods(), key=lambda pod: pod["metadata"]["creationTimestamp"])
    assert member.jobs()[0]["status"].get("failed", 0) == 0
    member.set_pod_status(third, **ended(2))
    found = member.wait_condition("Finished", "TrainerFailed")
    assert "the last words" in found["message"]


def test_queued_job_stays_suspended_until_its_queue_admits_it(world):
    world.configure(limits={"queues": ["gpus"]})
    world.accept()
    world.agent.start()
    world.assign(template={"queueName": "gpus"})
    job = world.wait_job()
    assert job["spec"]["suspend"] is True
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    world.wait_condition("PodReady", "Queued")
    world.assign(template={"queueName": "gpus"}, experts="0-3")
    world.member.kubectl(
        *("patch", "job", job["metadata"]["name"], "-n", world.namespace),
        *("--type=merge", "-p", '{"spec": {"suspend": false}}'),
    )
    world.wait_pod()
    world.assign(template={"queueName": "gpus"}, experts="0-7")
    world.wait_condition("PodReady", "Starting")
    assert world.wait_job()["spec"]["suspend"] is False


def test_cut_from_the_hub_makes_the_agent_unready_and_ends_nothing(member):
    member.assign()
    job = member.wait_job()
    until(member.is_ready, member.agent.log)
    assert member.metric("spes_hub_reachable") == 1
    member.hub.kill_api_server()
    try:
        until(lambda: not member.is_ready(), member.agent.log)
        assert member.is_alive()
        assert member.metric("spes_hub_reachable") == 0
        assert generations(member.jobs()) == generations([job])
    finally:
        member.hub.start_api_server()
    until(member.is_ready, member.agent.log)
    member.assign(desired="Stop")
    until(lambda: not member.jobs(), member.agent.log)
    assert member.agent.is_running()


def test_nodes_become_slots_until_they_are_cordoned(world):
    product = f"TEST-{world.name}".upper()
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": world.name,
            "labels": {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": "16384"},
        },
    }
    status = {
        "allocatable": {"nvidia.com/gpu": "2", "pods": "9"},
        "capacity": {"nvidia.com/gpu": "2", "pods": "9"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    world.configure(slots=[], nodes={"resources": {"memory": "8Gi"}})
    world.accept()
    world.agent.start()
    world.report()
    world.here.apply(node)
    world.member.kubectl(
        *("patch", "node", world.name, "--subresource=status", "--type=merge"),
        *("-p", json.dumps({"status": status})),
    )

    def slots():
        return {slot["name"]: slot for slot in world.report().get("slots", ())}

    names = [f"{product.lower()}-{index}" for index in range(2)]
    until(lambda: set(names) <= slots().keys(), lambda: f"{slots()} {world.agent.log()}")
    assert slots()[names[0]]["memoryBytes"] == 16 * 2**30
    assert slots()[names[0]]["resources"] == {"memory": "8Gi", "nvidia.com/gpu": "1"}
    world.member.kubectl("cordon", world.name)
    until(lambda: not set(names) & slots().keys(), lambda: f"{slots()} {world.agent.log()}")
    world.member.kubectl("delete", "node", world.name)
