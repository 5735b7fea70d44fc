"""Invite, accept, revoke, reassign and drain, over an API in memory."""

import asyncio
import base64
import json
import subprocess
import sys
from datetime import timedelta

import pytest
import yaml
from spes_operator.cli import main
from spes_operator.cli.accept import accept, revoke
from spes_operator.cli.invite import Wish, invite
from spes_operator.cli.join_file import HubAddress, Invitation, audiences_of, join_file
from spes_operator.cli.reassign import drain_from_job, drain_member, reassign
from spes_operator.errors import ConfigError, ConflictError, NotFoundError
from spes_operator.k8s.memory import MemoryApi
from spes_operator.names import ObjectKey

NAMESPACE = "spes-member-uni-c"
JOB = ObjectKey("research", "moe")
TOKEN = "eyJ.secret.token"


class Api(MemoryApi):
    """Also issues tokens; once `meddle` is set, somebody else changes what is being replaced."""

    def __init__(self):
        super().__init__()
        self.tokens = []
        self.meddle = 0

    async def request_token(self, namespace, account, spec):
        self.tokens.append((namespace, account, spec))
        return {"token": TOKEN, "expirationTimestamp": "2026-01-02T00:00:00Z"}

    async def replace(self, owner, obj):
        if self.meddle:
            self.meddle -= 1
            raise ConflictError("somebody was faster")
        return await super().replace(owner, obj)


@pytest.fixture
def api():
    return Api()


def wish(**changes):
    return Wish(**({"member": "uni-c", "ttl": timedelta(hours=24)} | changes))


def member(api):
    return asyncio.run(api.get("MemberCluster", "", "uni-c"))


def job(api):
    metadata = {"namespace": JOB.namespace, "name": JOB.name}
    asyncio.run(api.create("user", {"kind": "SpesJob", "metadata": metadata, "spec": {}}))


def has(api, kind, name, namespace=NAMESPACE):
    try:
        asyncio.run(api.get(kind, namespace, name))
    except NotFoundError:
        return False
    return True


def test_an_invitation_makes_a_place_with_few_rights(api):
    asyncio.run(invite(api, wish()))
    assert member(api)["spec"]["accepted"] is False
    bindings = asyncio.run(api.list("RoleBinding", NAMESPACE)).items
    assert {
        (one["roleRef"]["name"], one["subjects"][0]["namespace"], one["subjects"][0]["name"])
        for one in bindings
    } == {
        ("spes-member-candidate", NAMESPACE, "agent"),
        ("spes-hub-in-member", "spes-system", "spes-hub"),
    }


def test_the_token_is_bound_to_a_secret_that_voids_it(api):
    asyncio.run(invite(api, wish(ttl=timedelta(hours=2))))
    secret = asyncio.run(api.get("Secret", NAMESPACE, "join-token"))
    [(namespace, account, spec)] = api.tokens
    assert (namespace, account, spec["expirationSeconds"]) == (NAMESPACE, "agent", 7200)
    assert spec["boundObjectRef"]["uid"] == secret["metadata"]["uid"]
    assert "data" not in secret


def test_the_place_goes_with_the_member(api):
    asyncio.run(invite(api, wish()))
    namespace = asyncio.run(api.get("Namespace", "", NAMESPACE))
    [owner] = namespace["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("MemberCluster", member(api)["metadata"]["uid"])


def test_inviting_twice_needs_renew(api):
    asyncio.run(invite(api, wish()))
    with pytest.raises(ConfigError, match="spes invite uni-c --renew"):
        asyncio.run(invite(api, wish()))
    first = asyncio.run(api.get("Secret", NAMESPACE, "join-token"))["metadata"]["uid"]
    asyncio.run(invite(api, wish(renew=True)))
    second = asyncio.run(api.get("Secret", NAMESPACE, "join-token"))["metadata"]["uid"]
    assert first != second


def test_renewing_a_stranger_names_those_that_exist(api):
    asyncio.run(invite(api, wish()))
    with pytest.raises(ConfigError, match=r"no MemberCluster uni-x .*uni-c"):
        asyncio.run(invite(api, wish(member="uni-x", renew=True)))


def test_renewing_keeps_the_pin_and_the_acceptance_and_names_what_it_replaces(api):
    asyncio.run(invite(api, wish(auto_accept=True)))
    status = {"clusterID": "c1"}
    asyncio.run(api.patch_status("MemberCluster", "", "uni-c", status))
    report = {"kind": "MemberReport", "metadata": {"namespace": NAMESPACE, "name": "report"}}
    asyncio.run(api.create("uni-c", report))
    credential = {"expiresAt": "2026-01-08T00:00:00Z", "persisted": True}
    told = {"credential": credential}
    asyncio.run(api.patch_status("MemberReport", NAMESPACE, "report", told))
    before = member(api)
    asyncio.run(invite(api, wish(renew=True)))
    after = member(api)
    assert after["status"] == status
    assert after["spec"]["accepted"] is True
    annotations = after["metadata"]["annotations"]
    assert annotations["spes.dev/replaces"] == "2026-01-08T00:00:00Z"
    was = before["metadata"]["annotations"]["spes.dev/invitation"]
    assert annotations["spes.dev/invitation"] != was


def test_accepting_says_which_cluster_it_is(api, capsys):
    asyncio.run(invite(api, wish()))
    asyncio.run(accept(api, "uni-c"))
    assert member(api)["spec"]["accepted"] is True
    assert "has not reported" in capsys.readouterr().out
    asyncio.run(api.patch_status("MemberCluster", "", "uni-c", {"clusterID": "c1", "gpus": 8}))
    asyncio.run(accept(api, "uni-c"))
    assert "UID c1" in capsys.readouterr().out


def test_accepting_a_cluster_that_is_a_member_already_says_so(api, capsys):
    asyncio.run(invite(api, wish()))
    told = {"type": "Ready", "status": "False", "reason": "ClusterTaken"}
    told["message"] = "its cluster is member uni-a already"
    asyncio.run(api.patch_status("MemberCluster", "", "uni-c", {"conditions": [told]}))
    asyncio.run(accept(api, "uni-c"))
    said = capsys.readouterr().out
    assert "its cluster is member uni-a already" in said
    assert "has not reported" not in said


def test_a_change_is_tried_again_when_somebody_was_faster(api):
    asyncio.run(invite(api, wish()))
    api.meddle = 3
    asyncio.run(accept(api, "uni-c"))
    assert member(api)["spec"]["accepted"] is True
    api.meddle = 99
    with pytest.raises(ConflictError):
        asyncio.run(revoke(api, "uni-c"))


def test_revoking_voids_every_token_and_the_acceptance(api):
    asyncio.run(invite(api, wish(auto_accept=True)))
    asyncio.run(revoke(api, "uni-c"))
    assert not has(api, "ServiceAccount", "agent")
    assert not has(api, "Secret", "join-token")
    assert member(api)["spec"]["accepted"] is False
    asyncio.run(invite(api, wish(renew=True)))
    assert has(api, "ServiceAccount", "agent")


def test_draining_a_member_cordons_it(api, capsys):
    asyncio.run(invite(api, wish(auto_accept=True)))
    asyncio.run(drain_member(api, "uni-c"))
    assert member(api)["spec"] == {"accepted": True, "unschedulable": True}
    assert "unschedulable" in capsys.readouterr().out


def test_draining_from_one_job_adds_the_member_to_those_it_leaves(api):
    asyncio.run(invite(api, wish()))
    asyncio.run(invite(api, wish(member="uni-a")))
    job(api)
    for name in ("uni-c", "uni-a", "uni-c"):
        asyncio.run(drain_from_job(api, name, JOB))
    found = asyncio.run(api.get("SpesJob", *JOB))
    assert found["metadata"]["annotations"]["spes.dev/drain"] == "uni-a,uni-c"


def test_reassigning_is_a_new_word_each_time(api):
    job(api)
    words = set()
    for _ in range(2):
        asyncio.run(reassign(api, JOB))
        found = asyncio.run(api.get("SpesJob", *JOB))
        words.add(found["metadata"]["annotations"]["spes.dev/reassign"])
    assert len(words) == 2


def test_the_join_file_is_a_secret_with_a_kubeconfig():
    hub = HubAddress(server="https://hub.example.org:6443", ca=b"PEM")
    text = join_file(hub, Invitation(member="uni-c", token=TOKEN, good_until="tomorrow"))
    secret = yaml.safe_load(text)
    assert (secret["kind"], secret["metadata"]["name"]) == ("Secret", "spes-join")
    assert secret["stringData"]["name"] == "uni-c"
    kubeconfig = yaml.safe_load(secret["stringData"]["kubeconfig"])
    [cluster] = kubeconfig["clusters"]
    assert cluster["cluster"]["server"] == "https://hub.example.org:6443"
    assert base64.b64decode(cluster["cluster"]["certificate-authority-data"]) == b"PEM"
    assert kubeconfig["users"][0]["user"] == {"token": TOKEN}
    assert kubeconfig["contexts"][0]["context"]["namespace"] == NAMESPACE
    assert "\n        server: https://hub.example.org:6443\n" in text  # a person can check it


@pytest.mark.parametrize(
    ("claims", "audiences"),
    [
        ({"aud": ["a", "b"]}, ("a", "b")),
        ({"aud": "a"}, ("a",)),
        ({}, ()),
        ([], ()),
    ],
)
def test_a_token_says_for_whom_it_is(claims, audiences):
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    assert audiences_of(f"e30.{payload}.sig") == audiences


def test_no_token_is_for_nobody():
    assert audiences_of("secret") == ()


def test_an_invitation_does_not_print_its_token():
    assert TOKEN not in repr(Invitation(member="uni-c", token=TOKEN, good_until="tomorrow"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["invite", "Uni_C"],
        ["invite", "uni-c", "--ttl", "1"],
        ["invite", "uni-c", "--ttl", "9m"],
        ["invite", "uni-c", "--ttl", "8d"],
        ["reassign", "moe"],
        ["accept"],
    ],
    ids=" ".join,
)
def test_a_wrong_argument_is_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_missing_kubeconfig_is_one_line_and_leaves_no_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    for arguments in (["invite", "uni-c"], ["accept", "uni-c"], ["reassign", "moe", "--now"]):
        assert main(arguments) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_without_spes_is_asked_about(api):
    async def unknown(*_):
        raise NotFoundError("the server could not find the requested resource (HTTP 404)")

    api.get = api.list = unknown
    with pytest.raises(ConfigError, match="is SPES installed there"):
        asyncio.run(accept(api, "uni-c"))


def test_no_command_brings_the_client_of_kubernetes_before_it_is_used():
    source = (
        "import sys, spes_operator.cli.commands\n"
        "assert not {'kubernetes', 'aiohttp', 'kopf'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", source], check=True, timeout=50)
