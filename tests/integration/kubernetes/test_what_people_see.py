"""`spes status` and `spes explain` over a real API server: as its admin, and with few rights."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime

import pytest
import yaml
from builders.hub_objects import TRAINING, HubObjects
from builders.hub_world import KEY
from builders.live_objects import until
from builders.rights import apply, make_namespaces
from spes_operator.cli import main
from spes_operator.hub.ownership import Ownership
from spes_operator.k8s.cluster import ClusterApi
from spes_operator.k8s.connection import Connection

# A control plane starts within the first test.
pytestmark = [pytest.mark.timeout(240), pytest.mark.usefixtures("uid")]

MEMBERS = ("uni-a", "uni-b", "uni-c")
LIVE = ("PodReady", "True", "SessionLive")
IMAGE = ("PodReady", "False", "ImagePullFailed", "ErrImagePull: no such tag")
OF_KEY = ("-n", KEY.namespace)
READER = "reader"


class LiveHub(HubObjects):
    """Objects on a real API server, written by its admin."""

    def __init__(self, kubeconfig):
        self._runner = asyncio.Runner()
        self._connection = self._runner.run(Connection.open(kubeconfig))
        super().__init__(ClusterApi(self._connection))

    def run(self, coroutine):
        return self._runner.run(coroutine)

    def close(self):
        self.run(self._connection.close())
        self._runner.close()


@pytest.fixture(scope="module")
def plane(hub_control_plane):
    names = [KEY.namespace, *(f"spes-member-{member}" for member in MEMBERS)]
    make_namespaces(hub_control_plane, *names)
    yield hub_control_plane
    hub_control_plane.kubectl("delete", "membercluster", *MEMBERS, "--ignore-not-found")
    hub_control_plane.kubectl("delete", "namespace", *names, "--wait=false")


@pytest.fixture(scope="module")
def uid(plane):
    """A job that trains over two members, while a third one is silent; answers its UID."""
    hub = LiveHub(plane.kubeconfig)
    uid = hub.job(status=TRAINING)
    hub.member("uni-a")
    hub.member("uni-b")
    hub.member("uni-c", ready="Unknown")
    hub.assignment("uni-a.0", uid, LIVE, podName="moe-0-abc")
    hub.assignment("uni-b.0", uid, IMAGE, restarts=2)
    hub.event(uid, "ExpertsPlaced", "epoch 3: 8 experts placed")
    owners = dict.fromkeys(range(5), "uni-a.0") | dict.fromkeys(range(5, 8), "uni-b.0")
    now = datetime(2026, 1, 1, tzinfo=UTC)
    hub.ownership(
        uid, Ownership(epoch=3, peers=("uni-a.0", "uni-b.0"), owners=owners, changed_at=now)
    )
    yield uid
    hub.close()


@pytest.fixture
def spes(plane, capsys):
    """Runs a command that succeeds; answers what it prints, parsed if it is JSON."""

    def run(*arguments, user=plane.kubeconfig):
        assert main([*arguments, "--kubeconfig", str(user)]) == 0
        said = capsys.readouterr().out
        return json.loads(said) if "json" in arguments else said

    return run


@pytest.fixture(scope="module")
def reader(plane):
    """The kubeconfig of somebody who may read the jobs and Events of one namespace."""
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": READER}}
    kind["metadata"]["namespace"] = KEY.namespace
    rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": ["get", "list", "watch"]}
        for group, resource in (("spes.dev", "spesjobs"), ("", "events"))
    ]
    bound = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": READER}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": READER}
    apply(
        plane,
        kind | {"kind": "Role", "rules": rules},
        kind | {"kind": "RoleBinding", "roleRef": role, "subjects": [bound]},
    )
    return plane.kubeconfig_of(READER)


def test_a_job_is_one_screen(spes):
    shown = spes("status", KEY.name, *OF_KEY)
    for said in (
        "moe-tiny  Training  research",
        "round    12  2 of 2 peers ready  ownership epoch 3",
        " A  uni-a.0  training  0-4      0         moe-0-abc",
        " B  uni-b.0  waiting   5-7      2         -",
        " B  ! uni-b.0: ImagePullFailed: ErrImagePull: no such tag",
        "epoch 3: 8 experts placed",
    ):
        assert said in shown, shown


def test_programs_get_the_same(spes, plane):
    told = spes("status", KEY.name, *OF_KEY, "-o", "json")
    job = json.loads(plane.kubectl("get", "spesjob", KEY.name, *OF_KEY, "-o", "json"))
    assert (
        told["job"]
        | {
            "reason": "Training",
            "round": 12,
            "ownershipEpoch": 3,
            "loss": 3.4125,
            "created": job["metadata"]["creationTimestamp"],
        }
        == told["job"]
    )
    assert [(peer["peer"], peer["state"], peer["experts"]) for peer in told["peers"]] == [
        ("uni-a.0", "training", [0, 1, 2, 3, 4]),
        ("uni-b.0", "waiting", [5, 6, 7]),
    ]
    assert [event["text"] for event in told["events"]] == ["epoch 3: 8 experts placed"]
    assert told["notes"] == []


def test_all_jobs_and_members_are_two_tables(spes):
    told = spes("status", *OF_KEY, "-o", "json")
    assert [job["name"] for job in told["jobs"]] == [KEY.name]
    states = {member["name"]: member["state"] for member in told["members"]}
    assert {name: states[name] for name in MEMBERS} == {
        "uni-a": "ready",
        "uni-b": "ready",
        "uni-c": "silent",
    }
    shown = spes("status")
    row = next(line for line in shown.splitlines() if line.startswith("research/moe-tiny "))
    assert row.split()[1:-1] == ["Training", "2/2", "8/8", "12", "3", "450,000", "3.413"]
    assert "! uni-c: its heartbeat does not arrive" in shown


def test_explain_says_who_owns_what_and_who_is_not_used(spes):
    shown = spes("explain", f"sj/{KEY.name}", *OF_KEY)
    assert "uni-a.0 owns 5 of 8 experts in epoch 3" in shown
    assert "not ready" not in shown
    told = spes("explain", f"sj/{KEY.name}", *OF_KEY, "-o", "json")
    assert told["waitsFor"] == ""
    why = "member uni-c is silent: it gets no experts until it is heard"
    assert why in told["unused"]
    assert why in shown
    assert [peer["peer"] for peer in told["peers"]] == ["uni-a.0", "uni-b.0"]


def test_whoever_may_read_little_is_shown_that_and_told_the_rest(spes, reader):
    told = spes("status", KEY.name, *OF_KEY, "-o", "json", user=reader)
    assert told["job"]["round"] == 12
    assert [event["text"] for event in told["events"]] == ["epoch 3: 8 experts placed"]
    assert [note.partition(" ")[0] for note in told["notes"]] == [
        "MemberCluster",
        "TrainerAssignment",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["status"], "to see the jobs of one namespace alone: -n NS"),
        (["explain", f"sj/{KEY.name}", *OF_KEY], "use a kubeconfig of the hub's admin"),
    ],
)
def test_whoever_may_not_is_told_what_to_do(reader, capsys, arguments, words):
    assert main([*arguments, "--kubeconfig", str(reader)]) == 1
    assert words in capsys.readouterr().err


def test_of_several_kubeconfigs_the_first_context_counts(plane, tmp_path, monkeypatch, capsys):
    """And of its namespace; files that are not there are no matter. So it is with kubectl."""
    document = yaml.safe_load(plane.kubeconfig.read_text())
    context = document["contexts"][0]
    context["context"]["namespace"] = KEY.namespace
    (tmp_path / "hub").write_text(yaml.safe_dump(document))
    elsewhere = {
        "current-context": "elsewhere",
        "contexts": [{"name": "elsewhere", "context": context["context"] | {"namespace": "x"}}],
    }
    (tmp_path / "elsewhere").write_text(yaml.safe_dump(elsewhere))
    files = [tmp_path / "missing", tmp_path / "hub", tmp_path / "elsewhere"]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, files)))
    assert main(["status", KEY.name]) == 0
    assert "moe-tiny  Training  research" in capsys.readouterr().out
    assert main(["status", KEY.name, "--context", "elsewhere"]) == 2
    assert "no SpesJob moe-tiny in namespace x" in capsys.readouterr().err


def test_a_change_is_a_line_and_an_interrupt_ends_it(plane, tmp_path):
    command = ["status", KEY.name, *OF_KEY, "--watch", "-o", "json"]
    program = [sys.executable, "-m", "spes_operator.cli", *command]
    lines = tmp_path / "lines"

    def rounds():
        whole = [line for line in lines.read_text().splitlines(True) if line.endswith("\n")]
        return [json.loads(line)["job"]["round"] for line in whole]

    with lines.open("w") as output:
        watching = subprocess.Popen([*program, "--kubeconfig", plane.kubeconfig], stdout=output)
    try:
        until(lambda: rounds() == [12])
        change_status(plane, round=13)
        until(lambda: rounds() == [12, 13])
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 130
    finally:
        watching.kill()
        watching.wait()
        change_status(plane, round=12)


def change_status(plane, **fields):
    plane.kubectl(
        *("patch", "spesjob", KEY.name, *OF_KEY, "--subresource=status", "--type=merge"),
        *("-p", json.dumps({"status": fields})),
    )


def test_what_is_left_of_a_deleted_job_is_listed(spes, plane, uid):
    hub = LiveHub(plane.kubeconfig)
    hub.volume(uid)
    hub.close()
    plane.kubectl("delete", "spesjob", KEY.name, *OF_KEY)
    told = spes("status", "--deleted", *OF_KEY, "-o", "json")
    (deleted,) = [one for one in told["deleted"] if one["uid"] == uid]
    assert {peer["peer"] for peer in deleted["peers"]} == {"uni-a.0", "uni-b.0"}
    assert [volume["name"] for volume in deleted["volumes"]] == [f"{KEY.name}-{uid[:8]}"]
    assert f"kubectl delete pvc -n research {KEY.name}-{uid[:8]}" in spes("status", "--deleted")
