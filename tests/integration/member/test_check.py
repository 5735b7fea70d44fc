"""`spes-operator check`, as `helm test` runs it: what stands between a member and its hub."""

import base64

import pytest
import yaml
from builders.hub_program import free_port

# A control plane starts within the first test.
pytestmark = pytest.mark.timeout(240)


def change_cluster(world, **fields):
    """Another way to the hub in the invitation."""
    document = yaml.safe_load(world.invitation.read_text())
    cluster = document["clusters"][0]["cluster"]
    document["clusters"][0]["cluster"] = {"server": cluster["server"]} | fields
    world.invitation.write_text(yaml.safe_dump(document))


def test_an_invited_member_reaches_its_hub(world):
    checked = world.check()
    assert checked.returncode == 0, checked.stderr
    assert f"hub reached member={world.name}, which has not reported yet" in checked.stderr


def test_a_void_token_asks_for_another_invitation(world):
    world.hub.kubectl("delete", "serviceaccount", "agent", "-n", world.at_hub)
    checked = world.check()
    assert checked.returncode == 2
    assert f"spes invite {world.name} --renew" in checked.stderr
    assert "does not know the token" in checked.stderr


def test_another_members_invitation_is_told(world):
    world.hub.kubectl("delete", "rolebinding", "spes-member-candidate", "-n", world.at_hub)
    checked = world.check()
    assert checked.returncode == 2
    assert f"not as member {world.name}'s" in checked.stderr


def test_a_wrong_ca_is_told(world):
    certificate = base64.b64encode(world.member.ca_file.read_bytes()).decode()
    change_cluster(world, **{"certificate-authority-data": certificate})
    checked = world.check()
    assert checked.returncode == 2
    assert "not signed by the CA that the invitation names" in checked.stderr


def test_a_hub_that_does_not_answer_is_told(world):
    change_cluster(world, server=f"https://127.0.0.1:{free_port()}")
    checked = world.check()
    assert checked.returncode == 2
    assert "the hub does not answer" in checked.stderr
    assert "hub.cidrs" in checked.stderr


@pytest.mark.parametrize("way", ["certificate", "address"])
def test_what_is_said_holds_no_token(world, way):
    token = yaml.safe_load(world.invitation.read_text())["users"][0]["user"]["token"]
    server = f"https://127.0.0.1:{free_port()}" if way == "address" else world.hub.url
    change_cluster(world, server=server)
    checked = world.check()
    assert checked.returncode == 2
    assert token not in checked.stdout + checked.stderr
