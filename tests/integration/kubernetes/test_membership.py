"""How a member comes and goes, on a real API server, with the rights that everybody really has."""

import asyncio
import json
import stat
import time
import uuid
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from builders.api_worlds import SCENARIO_SECONDS
from builders.control_plane import ControlPlane
from builders.rights import HUB, install_hub_rights
from spes_operator.cli import main
from spes_operator.clock import SystemClock, from_text
from spes_operator.errors import ForbiddenError
from spes_operator.hub.heartbeats import Heartbeats
from spes_operator.hub.member_pass import MemberPass
from spes_operator.hub.roster import Roster
from spes_operator.k8s.cluster import ClusterApi

# A control plane starts within the first test, and its policies take a while to be in force.
pytestmark = pytest.mark.timeout(240)

# An API server takes a token that it knows for good another 10 s.
VOID_SECONDS = 40.0
SPES = "spes.dev/v1alpha1"
WEEK = timedelta(days=7)


@pytest.fixture(scope="module")
def hub_kubeconfig(hub_control_plane) -> Path:
    """Of the hub's own account."""
    install_hub_rights(hub_control_plane)
    return HUB.kubeconfig(hub_control_plane)


class Story:
    """One member's, told by those who take part in it."""

    def __init__(self, plane: ControlPlane, hub_kubeconfig: Path, folder: Path) -> None:
        self.plane = plane
        self.folder = folder
        self.cluster_id = uuid.uuid4().hex
        self.member = f"uni-{uuid.uuid4().hex[:6]}"
        self.namespace = f"spes-member-{self.member}"
        self.agent_kubeconfig = folder / "agent.kubeconfig"
        self._hub_kubeconfig = hub_kubeconfig

    def spes(self, *arguments: str) -> int:
        """A command of the hub's admin."""
        return main([*arguments, "--kubeconfig", str(self.plane.kubeconfig)])

    def mount_join_file(self) -> str:
        """The join file as the agent's pod has it; answers the token in it."""
        secret = yaml.safe_load((self.folder / f"join-{self.member}.yaml").read_text())
        text = secret["stringData"]["kubeconfig"]
        self.agent_kubeconfig.write_text(text)
        return str(yaml.safe_load(text)["users"][0]["user"]["token"])

    def use_own_token(self, token: str) -> None:
        kubeconfig = yaml.safe_load(self.agent_kubeconfig.read_text())
        kubeconfig["users"][0]["user"]["token"] = token
        self.agent_kubeconfig.write_text(yaml.safe_dump(kubeconfig))

    def hub_passes(self) -> None:
        """As a hub that has just started."""

        async def once():
            async with ClusterApi.open(self._hub_kubeconfig) as api:
                clock = SystemClock()
                roster = Roster(api, Heartbeats(clock.monotonic()))
                await MemberPass(api, roster, clock).reconcile()

        asyncio.run(once())

    def agent(self, act):
        """What the agent gets for something that it does."""

        async def whole():
            async with (
                asyncio.timeout(SCENARIO_SECONDS),
                ClusterApi.open(self.agent_kubeconfig) as api,
            ):
                return await act(api)

        return asyncio.run(whole())

    def agent_may(self, act) -> bool:
        try:
            self.agent(act)
        except ForbiddenError:
            return False
        return True

    def report(self, cluster_id=None, **credential):
        async def act(api):
            metadata = {"namespace": self.namespace, "name": "report"}
            await api.apply(
                "spes-member", {"apiVersion": SPES, "kind": "MemberReport", "metadata": metadata}
            )
            told = {"credential": credential} if credential else {}
            status = {"clusterID": cluster_id or self.cluster_id, "version": "0.1.0"} | told
            await api.patch_status("MemberReport", self.namespace, "report", status)

        self.agent(act)

    async def look(self, api):
        return await api.list("TrainerAssignment", self.namespace)

    async def beat(self, api):
        metadata = {"namespace": self.namespace, "name": "heartbeat"}
        await api.apply(
            "spes-member",
            {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata},
        )

    async def own_token(self, api):
        return await api.request_token(
            self.namespace, "agent", {"expirationSeconds": int(WEEK.total_seconds())}
        )

    def until(self, holds, seconds=SCENARIO_SECONDS):
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def cluster(self):
        return json.loads(self.plane.kubectl("get", "membercluster", self.member, "-o", "json"))

    def condition(self, kind):
        return next(
            one["status"] for one in self.cluster()["status"]["conditions"] if one["type"] == kind
        )

    def ready(self):
        """Status, reason and message."""
        found = self.cluster()["status"]["conditions"]
        ready = next(one for one in found if one["type"] == "Ready")
        return ready["status"], ready["reason"], ready["message"]

    def has_join_token(self) -> bool:
        names = self.plane.kubectl("get", "secrets", "-n", self.namespace, "-o", "name")
        return "secret/join-token" in names.split()

    def joined(self) -> None:
        """Invited, accepted, with a token of its own that it keeps."""
        assert self.spes("invite", self.member, "--auto-accept") == 0
        self.mount_join_file()
        self.hub_passes()
        self.until(lambda: self.agent_may(self.own_token))
        self.keep_own_token()
        self.hub_passes()
        assert not self.has_join_token()

    def keep_own_token(self) -> None:
        issued = self.agent(self.own_token)
        self.use_own_token(issued["token"])
        self.report(expiresAt=issued["expirationTimestamp"], persisted=True)

    def end(self) -> None:
        self.plane.kubectl("delete", "membercluster", self.member, "--ignore-not-found")
        self.plane.kubectl(
            "delete", "namespace", self.namespace, "--ignore-not-found", "--wait=false"
        )


@pytest.fixture
def story(hub_control_plane, hub_kubeconfig, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    story = Story(hub_control_plane, hub_kubeconfig, tmp_path)
    yield story
    story.end()


@pytest.fixture
def another(hub_control_plane, hub_kubeconfig, tmp_path):
    """The story of another member."""
    another = Story(hub_control_plane, hub_kubeconfig, tmp_path)
    another.agent_kubeconfig = tmp_path / "another.kubeconfig"
    yield another
    another.end()


def test_an_invitation_is_a_private_file_and_nothing_else(story, capsys, caplog):
    caplog.set_level("DEBUG")
    assert story.spes("invite", story.member) == 0
    [path] = story.folder.iterdir()
    assert path.name == f"join-{story.member}.yaml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    token = story.mount_join_file()
    said = capsys.readouterr()
    assert token not in said.out + said.err + caplog.text
    assert f"spes accept {story.member}" in said.out
    for kind in ("events", "secrets", "memberclusters"):
        assert token not in story.plane.kubectl("get", kind, "-A", "-o", "json")


def test_before_acceptance_it_may_say_what_it_is_and_nothing_else(story):
    assert story.spes("invite", story.member) == 0
    story.mount_join_file()
    story.report()
    story.hub_passes()
    for act in (story.look, story.beat, story.own_token):
        assert not story.agent_may(act)
    assert story.condition("Joined") == "True"
    assert story.condition("Accepted") == "False"
    assert story.cluster()["status"]["clusterID"] == story.cluster_id


def test_accepting_gives_rights_and_taking_it_back_takes_them(story):
    assert story.spes("invite", story.member) == 0
    story.mount_join_file()
    assert story.spes("accept", story.member) == 0
    story.hub_passes()
    assert story.condition("Accepted") == "True"
    story.until(lambda: story.agent_may(story.look))
    assert story.agent_may(story.beat)
    patch = json.dumps({"spec": {"accepted": False}})
    story.plane.kubectl("patch", "membercluster", story.member, "--type=merge", "-p", patch)
    story.hub_passes()
    story.until(lambda: not story.agent_may(story.look))
    story.report()  # it may still say what it is


def test_its_own_token_lives_a_week_and_ends_the_invitation(story):
    assert story.spes("invite", story.member, "--auto-accept", "--ttl", "10m") == 0
    invited = story.mount_join_file()
    story.hub_passes()
    story.until(lambda: story.agent_may(story.own_token))
    issued = story.agent(story.own_token)
    life = from_text(issued["expirationTimestamp"]) - SystemClock().now()
    assert WEEK - timedelta(minutes=5) < life <= WEEK
    story.hub_passes()
    assert story.has_join_token()  # it has told nobody yet
    story.keep_own_token()
    story.hub_passes()
    assert not story.has_join_token()
    assert story.condition("CredentialsValid") == "True"
    assert story.agent_may(story.look)
    story.use_own_token(invited)
    story.until(lambda: not story.agent_may(story.look), VOID_SECONDS)


def test_a_revoked_member_is_out_until_it_is_invited_again(story):
    story.joined()
    assert story.spes("revoke", story.member) == 0
    story.until(lambda: not story.agent_may(story.look), VOID_SECONDS)
    story.hub_passes()
    assert story.condition("Accepted") == "False"
    bindings = story.plane.kubectl("get", "rolebindings", "-n", story.namespace, "-o", "name")
    assert "rolebinding.rbac.authorization.k8s.io/spes-member-agent" not in bindings.split()
    assert story.spes("invite", story.member, "--renew", "--auto-accept") == 0
    story.mount_join_file()
    story.hub_passes()
    assert story.has_join_token()  # the report is of the credential before
    story.until(lambda: story.agent_may(story.own_token))
    story.keep_own_token()
    story.hub_passes()
    assert not story.has_join_token()
    assert story.cluster()["status"]["clusterID"] == story.cluster_id


def test_a_deleted_member_takes_its_place_with_it(story):
    story.joined()
    story.plane.kubectl("delete", "membercluster", story.member)
    story.until(lambda: not story.agent_may(story.look), VOID_SECONDS)


def test_an_audience_that_the_policy_does_not_know_is_told(story, capsys):
    patch = ("patch", "configmap", "spes-api-audiences", "-n", "spes-system", "--type=merge", "-p")
    before = json.loads(story.plane.kubectl("get", *patch[1:5], "-o", "json"))["data"]
    story.plane.kubectl(*patch, json.dumps({"data": {"audiences": "elsewhere"}}))
    try:
        assert story.spes("invite", story.member) == 0
    finally:
        story.plane.kubectl(*patch, json.dumps({"data": before}))
    assert "https://kubernetes.default.svc.cluster.local" in capsys.readouterr().err


def test_another_cluster_under_its_name_is_not_used(story):
    story.joined()
    story.report(cluster_id="c2")
    story.hub_passes()
    assert story.ready()[:2] == ("False", "ClusterIDDiffers")
    assert story.cluster()["status"]["clusterID"] == story.cluster_id


def test_its_cluster_under_another_name_is_not_used(story, another):
    story.joined()
    another.cluster_id = story.cluster_id
    assert another.spes("invite", another.member, "--auto-accept") == 0
    another.mount_join_file()
    another.report()
    another.hub_passes()
    status, reason, message = another.ready()
    assert (status, reason) == ("False", "ClusterTaken")
    assert f"member {story.member} already" in message
    assert another.cluster()["status"]["clusterID"] == ""
    assert story.ready()[1] != "ClusterTaken"
    story.plane.kubectl("delete", "membercluster", story.member)
    another.hub_passes()
    assert another.cluster()["status"]["clusterID"] == another.cluster_id


def test_who_lacks_rights_is_told_what_to_do(story, hub_kubeconfig, capsys):
    code = main(["invite", story.member, "--kubeconfig", str(hub_kubeconfig)])
    assert code == 1
    complaint = capsys.readouterr().err
    assert "cannot create resource" in complaint
    assert "use a kubeconfig of the hub's admin" in complaint
    assert list(story.folder.iterdir()) == []


def test_a_context_is_chosen_by_name(story, tmp_path, capsys):
    document = yaml.safe_load(story.plane.kubeconfig.read_text())
    document["contexts"] += [
        {"name": "lab", "context": document["contexts"][0]["context"] | {"namespace": "lab"}}
    ]
    kubeconfig = tmp_path / "several.kubeconfig"
    kubeconfig.write_text(json.dumps(document))
    command = ["reassign", "moe", "--now", "--kubeconfig", str(kubeconfig)]
    assert main([*command, "--context", "lab"]) == 2
    assert "no SpesJob moe in namespace lab" in capsys.readouterr().err
    assert main(command) == 2
    assert "no SpesJob moe in namespace default" in capsys.readouterr().err
    assert main([*command, "--context", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err
