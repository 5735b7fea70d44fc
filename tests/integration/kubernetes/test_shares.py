"""What befalls one member, around a real hub: its own share alone waits, or is refused."""

import threading

import pytest
from builders.hub_life import SLOW_SECONDS, HubLife
from builders.live_objects import condition, is_true
from builders.rights import HUB, apply, binding, install_hub_rights
from builders.tiny_job import owners
from builders.toy_peer import Gate
from spes_operator.names import HUB_IN_MEMBER_ROLE, member_namespace

pytestmark = pytest.mark.timeout(600)
STEPS = 5
SHORT = {"unreachableAfterSeconds": 4, "reassignAfterSeconds": 10}
LONG = {"unreachableAfterSeconds": 60, "reassignAfterSeconds": 300}


@pytest.fixture
def life(hub_control_plane, tmp_path):
    install_hub_rights(hub_control_plane)
    with HubLife(hub_control_plane, tmp_path / "life") as life:
        yield life


def test_a_late_push_under_a_stale_epoch_is_refused_by_name(life):
    """The round that it is for is still open, but no longer waits for its peer."""
    life.train(reassignment=SHORT, sync={"everySteps": STEPS, "timeoutSeconds": 600})
    gates = {site: Gate(SLOW_SECONDS) for site in ("uni-a", "uni-b")}
    last = life.journal.rounds() + 5
    for site, gate in gates.items():
        gate.open(last)
        life.played(site).before_step = gate
    for gate in gates.values():
        gate.wait_until_reached(last + 1)
    member, peer = life.played("uni-b"), life.peer("uni-b")
    stall = Stall(member.peer.learner)
    member.cut()
    gates["uni-b"].open()
    life.wait(stall.begun.is_set)
    life.wait(lambda: owners(life.job()) == {life.peer("uni-a")})
    assert life.journal.owners()[peer], "the open round is still that of both"
    sessions = connections(life, peer)
    member.mend()
    life.wait(lambda: connections(life, peer) > sessions)
    stall.over.set()
    life.wait(lambda: bool(refusals(life, peer)))
    refused = refusals(life, peer)[0]
    assert (refused["round"], refused["reason"]) == (last + 1, "NOT_EXPECTED")
    assert f"{peer} is not in round {last + 1}" in refused["detail"]
    gates["uni-a"].open()
    life.wait(lambda: life.owned_by("uni-a", "uni-b") and life.journal.rounds() > last + 2)
    counted = next(one for one in life.journal.entries("committed") if one["round"] == last + 1)
    assert [one["peer"] for one in counted["peers"]] == [life.peer("uni-a")]
    life.journal.check_owners()


class Stall:
    """Keeps a peer that has done its steps from reading what it is about to push."""

    def __init__(self, learner):
        self.begun, self.over = threading.Event(), threading.Event()
        self._read, learner.read = learner.read, self._wait_and_read

    def _wait_and_read(self, names):
        self.begun.set()
        assert self.over.wait(SLOW_SECONDS)
        return self._read(names)


def connections(life, peer):
    """How often its Session has begun."""
    return sum(one["peer"] == peer for one in life.journal.entries("connected"))


def refusals(life, peer):
    """Pushes of a peer that the sync server has refused."""
    pushes = life.journal.entries("push")
    return [one for one in pushes if one["peer"] == peer and one["verdict"] == "REFUSED"]


def test_a_member_whose_namespace_is_shut_keeps_its_own_share_waiting_alone(
    life, hub_control_plane
):
    life.train(reassignment=LONG)
    shut = member_namespace(life.member("uni-b"))
    hub_control_plane.kubectl("delete", "rolebinding", HUB_IN_MEMBER_ROLE, "-n", shut)
    life.kill_hub()
    life.hub.program.kill()
    life.hub.program.start()
    life.wait(lambda: condition(life.job(), "Degraded")["reason"] == "HubForbidden")
    assert life.member("uni-b") in condition(life.job(), "Degraded")["message"]
    assert is_true(life.job(), "Ready")
    (before,) = life.objects.list("TrainerAssignment", shut)
    life.cordon("uni-a")
    life.wait(lambda: life.owned_by("uni-b"))
    life.wait(lambda: not life.assignments("uni-a"))
    (during,) = life.objects.list("TrainerAssignment", shut)
    assert during["spec"] == before["spec"]
    apply(hub_control_plane, binding(HUB_IN_MEMBER_ROLE, HUB, namespace=shut))
    life.wait(lambda: not is_true(life.job(), "Degraded"))
    life.wait(lambda: life.assignments("uni-b")[0]["spec"]["experts"] == "0-7")
    life.journal.check_owners()
