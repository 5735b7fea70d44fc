"""What `spes status` shows to people and to programs, and what it does if it cannot read all."""

import asyncio
import io
import json
import re
import socket
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from builders.hub_objects import TRAINING, HubObjects, condition
from pydantic.alias_generators import to_camel
from rich.console import Console
from spes_operator.cli import main
from spes_operator.cli.status import picture
from spes_operator.cli.status_json import as_document
from spes_operator.cli.status_question import Question
from spes_operator.cli.status_watch import watch
from spes_operator.display.status_view import (
    DeletedJob,
    DeletedView,
    JobRow,
    JobView,
    MemberRow,
    PeerRow,
    StatusView,
    Volume,
)
from spes_operator.display.view import EventLine
from spes_operator.errors import ConfigError, ForbiddenError, NotFoundError, UnavailableError
from spes_operator.k8s.memory import MemoryApi

PAGE = (Path(__file__).parents[3] / "docs/reference/status.md").read_text()
KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: hub, cluster: {{server: "{server}"}}}}]
users: [{{name: me, user: {{token: secret}}}}]
contexts: [{{name: here, context: {{cluster: hub, user: me}}}}]
current-context: here
"""
NOW = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)
ONE = Question(job="moe-tiny", namespace="research")
LIVE = ("PodReady", "True", "SessionLive")
IMAGE = ("PodReady", "False", "ImagePullFailed", "ErrImagePull: no such tag")


class Api(MemoryApi):
    """Refuses to list `forbidden` kinds, and all while it is `away`."""

    def __init__(self):
        super().__init__()
        self.forbidden = set()
        self.away = False

    async def list(self, kind, namespace="", labels=None):
        if self.away:
            raise UnavailableError("no answer from the API server")
        if kind in self.forbidden:
            raise ForbiddenError(f"may not list {kind}")
        return await super().list(kind, namespace, labels)

    async def get(self, kind, namespace, name):
        if self.away:
            raise UnavailableError("no answer from the API server")
        return await super().get(kind, namespace, name)


@pytest.fixture
def hub():
    return HubObjects(Api())


def asked(hub, question):
    return hub.run(question.answer(hub.api))


def drawn(view, width=100):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(picture(view, width, NOW))
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def two_peers(hub):
    uid = hub.job(status=TRAINING)
    hub.member("uni-a")
    hub.member("uni-b")
    hub.assignment("uni-a.0", uid, LIVE, podName="moe-0-abc")
    hub.assignment("uni-b.0", uid, IMAGE, restarts=2)
    hub.event(uid, "ExpertsPlaced", "epoch 3: 8 experts placed")
    return uid


def test_one_job_is_one_screen(hub):
    two_peers(hub)
    lines = drawn(asked(hub, ONE)).splitlines()
    assert lines[0].startswith("moe-tiny  Training  research")
    shown = "\n".join(lines)
    for said in (
        "round    12  2 of 2 peers ready  ownership epoch 3",
        "450,000 of 900,000  50%",
        "loss     3.413 held out",
        "          A   A   A   A   A   B   B   B",
        " A  uni-a.0  training  0-4      0         moe-0-abc",
        " B  uni-b.0  waiting   5-7      2         -",
        " B  ! uni-b.0: ImagePullFailed: ErrImagePull: no such tag",
        "uni-a   ready  1      1     0     1.2.0    0:30 ago",
        "epoch 3: 8 experts placed",
    ):
        assert said in shown, shown


def test_without_a_job_all_jobs_and_members_are_two_tables(hub):
    two_peers(hub)
    hub.member("uni-c", ready="Unknown")
    hub.member("uni-d", spec={"accepted": False}, status={})
    shown = drawn(asked(hub, Question()))
    assert "research/moe-tiny  Training  2/2    8/8      12     3      450,000  3.413" in shown
    assert "uni-c   silent" in shown
    assert "uni-d   not accepted" in shown
    assert "! uni-c: its heartbeat does not arrive" in shown


def test_a_job_that_waits_says_for_what(hub):
    waits = condition("Ready", "False", "NotEnoughMembers", "0 of at least 2 peers are ready")
    hub.job(status={"conditions": [waits]})
    assert "! 0 of at least 2 peers are ready" in drawn(asked(hub, ONE))
    assert "! research/moe-tiny: 0 of at least 2 peers are ready" in drawn(asked(hub, Question()))


def test_a_job_with_a_wrong_spec_is_shown(hub):
    wrong = condition("Ready", "False", "InvalidSpec", "spec.members: min must be at most max")
    hub.job(status={"conditions": [wrong]}, members={"min": 3, "max": 2})
    assert "! spec.members: min must be at most max" in drawn(asked(hub, ONE))


def test_a_hub_without_anything_says_so(hub):
    assert drawn(asked(hub, Question())) == "no jobs\n\nno members"
    assert drawn(asked(hub, Question(deleted=True))) == "nothing is left of deleted jobs"


@pytest.mark.parametrize(
    ("conditions", "desired", "state"),
    [
        ((), "Run", "starting"),
        ([LIVE], "Run", "ready"),
        ([("PodReady", "False", "Starting", "ended with 1; is started again")], "Run", "starting"),
        ([("Applied", "False", "VetoedByMember", "no")], "Run", "waiting"),
        ([LIVE], "Drain", "draining"),
        ([], "Stop", "stopping"),
        ([("Finished", "True", "TrainerFailed", "exit code 3")], "Run", "failed"),
    ],
)
def test_the_state_of_a_peer_is_a_word(hub, conditions, desired, state):
    uid = hub.job()
    hub.member("uni-a")
    hub.assignment("uni-a.0", uid, *conditions, desired=desired)
    (peer,) = asked(hub, ONE).peers
    assert peer.state == state


def test_a_peer_of_a_silent_member_is_silent_and_one_without_assignment_gone(hub):
    uid = hub.job(status=TRAINING)
    hub.member("uni-a", ready="Unknown")
    hub.assignment("uni-a.0", uid, LIVE)
    states = {peer.peer: peer.state for peer in asked(hub, ONE).peers}
    assert states == {"uni-a.0": "silent", "uni-b.0": "gone"}


def test_events_of_an_earlier_job_of_that_name_are_left_out(hub):
    uid = two_peers(hub)
    hub.event("another", "JobDeleted", "the job was deleted")
    hub.event(uid, "MemberLeft", "uni-c.0 takes no part", time="2026-01-01T11:00:00.000000Z")
    said = [event.text for event in asked(hub, ONE).events]
    assert said == ["uni-c.0 takes no part", "epoch 3: 8 experts placed"]


def test_what_is_left_of_deleted_jobs_says_what_becomes_of_it(hub):
    two_peers(hub)
    hub.member("uni-c", ready="Unknown")
    hub.assignment("uni-a.0", "gone-1234-5678", LIVE, desired="Drain")
    hub.assignment("uni-c.0", "gone-1234-5678", LIVE)
    hub.volume("gone-1234-5678")
    shown = drawn(asked(hub, Question(deleted=True)))
    assert shown.splitlines() == [
        "moe-tiny  gone-1234-5678",
        "  trainer uni-a.0 is draining: it ends once its last push is in",
        "  trainer uni-c.0 is silent: its member stops it when it is back",
        "  volume moe-tiny-gone-123 of 20Gi is kept; to remove it:",
        "    kubectl delete pvc -n research moe-tiny-gone-123",
    ]


def test_words_of_others_do_nothing_to_the_terminal(hub):
    uid = hub.job(status=TRAINING)
    evil = ("PodReady", "False", "ImagePullFailed", "[red]\x1b[2J\nno")
    hub.assignment("uni-a.0", uid, evil)
    assert "ImagePullFailed: [red] [2J no" in drawn(asked(hub, ONE))


def test_what_may_not_be_read_is_left_out_and_said(hub):
    two_peers(hub)
    hub.api.forbidden = {"MemberCluster", "TrainerAssignment", "Event"}
    view = asked(hub, ONE)
    assert [(peer.peer, peer.state) for peer in view.peers] == [
        ("uni-a.0", "gone"),
        ("uni-b.0", "gone"),
    ]
    assert len(view.notes) == 3
    assert "your account may not list it in namespace research" in view.notes[2]


def test_jobs_must_be_readable(hub):
    hub.api.forbidden = {"SpesJob"}
    with pytest.raises(ForbiddenError, match="to see the jobs of one namespace alone: -n NS"):
        asked(hub, Question())


def test_a_hub_that_is_away_says_what_to_look_at(tmp_path, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        server = f"http://127.0.0.1:{taken.getsockname()[1]}"
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(KUBECONFIG.format(server=server))
        assert main(["status", "--kubeconfig", str(kubeconfig)]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("spes status: GET /apis/spes.dev/v1alpha1/spesjobs: no answer")
    assert second == (
        "spes status: is that the hub, and can it be reached from here? (--kubeconfig, --context)"
    )


def test_another_cluster_is_no_hub(hub):
    async def knows_none(*_):
        raise NotFoundError("the server could not find the requested resource")

    hub.api.list = knows_none
    with pytest.raises(ConfigError, match="knows no SPES; is it the hub"):
        asked(hub, Question())


def test_an_unknown_job_names_those_that_there_are(hub):
    hub.job()
    with pytest.raises(ConfigError, match=r"no SpesJob moe.*expected of: moe-tiny"):
        asked(hub, Question(job="moe", namespace="research"))


def test_json_has_every_field(hub):
    two_peers(hub)
    told = json.loads(json.dumps(as_document(asked(hub, ONE))))
    assert told["job"]["ownershipEpoch"] == 3
    assert told["peers"][0]["experts"] == [0, 1, 2, 3, 4]
    assert told["members"][0]["lastHeartbeat"] == "2026-01-01T12:00:00Z"
    assert told["events"][0]["time"] == "2026-01-01T12:00:00Z"


def test_a_change_is_said_and_the_end_of_the_job_ends_it(hub, monkeypatch):
    monkeypatch.setattr("spes_operator.cli.status_watch._SETTLE", timedelta(milliseconds=1))
    monkeypatch.setattr("spes_operator.cli.status_watch._REDRAW", timedelta(milliseconds=50))
    two_peers(hub)
    said = []

    async def next_round():
        await hub.api.patch_status("SpesJob", "research", "moe-tiny", TRAINING | {"round": 13})

    async def go_away():
        hub.api.away = True

    async def come_back_without_it():
        hub.api.away = False
        await hub.api.delete("SpesJob", "research", "moe-tiny")

    acts = iter([next_round, go_away, come_back_without_it])

    async def whole():
        tasks = set()

        def say(view):
            said.append((view.job.round, len(view.notes)))
            if act := next(acts, None):
                tasks.add(asyncio.ensure_future(act()))

        async with asyncio.timeout(30):
            await watch(hub.api, ONE, say)

    with pytest.raises(ConfigError, match="no SpesJob moe-tiny"):
        asyncio.run(whole())
    assert said == [(12, 0), (13, 0), (13, 1)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["status", "moe", "--deleted"], "--deleted shows all deleted jobs; leave JOB out"),
        (["status", "--kubeconfig", "/nowhere"], "/nowhere gives no access to an API server"),
        (["status", "moe", "--kubeconfig", "/nowhere"], "/nowhere names no context"),
    ],
)
def test_wrong_arguments_are_said_in_one_line(arguments, words, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("spes status: ")
    assert words in error


def test_an_empty_namespace_is_no_other_one(capsys):
    """It is what an unset variable of a script gives."""
    with pytest.raises(SystemExit) as ended:
        main(["status", "moe", "-n", ""])
    assert ended.value.code == 2
    assert "-n/--namespace: must name a namespace" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("section", "model"),
    [
        ("Job", JobRow),
        ("Member", MemberRow),
        ("Peer", PeerRow),
        ("Event", EventLine),
        ("Deleted", DeletedJob),
        ("Volume", Volume),
    ],
)
def test_every_field_of_the_json_is_on_the_page(section, model):
    part = re.search(rf"^### {section}\n(.*?)(?=^### |\Z)", PAGE, re.M | re.S)[1]
    rows = [line for line in part.splitlines() if line.startswith("| `")]
    told = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(told) == sorted(to_camel(one.name) for one in fields(model))


@pytest.mark.parametrize("view", [StatusView, JobView, DeletedView])
def test_every_part_of_the_json_is_on_the_page(view):
    head = PAGE.partition("### Job")[0]
    assert {to_camel(one.name) for one in fields(view)} <= set(re.findall(r"`(\w+)`", head))
