"""The hub is killed after each single write of a job's life, and the end is as without that.

An undisturbed life says which writes there are, so that a new one is swept by itself. In the second
life the hub dies as soon as it has made a write that it has not died at yet; the next hub finds
what the dead one left.
"""

import json
import re
from collections import Counter, deque

import pytest
from builders.hub_life import JOB, SITES, HubLife
from builders.live_objects import is_true
from builders.rights import install_hub_rights
from spes_operator.names import member_namespace

pytestmark = pytest.mark.timeout(1200)

# At a write that comes again and again it dies no more often than this.
DEATHS_AT_ONE = 2
# So many looks in a row find the same where a life is settled.
LOOKS = 20
CHANGES = {"ExpertsPlaced", "ExpertsMoved", "MemberLeft"}
DERIVED = ("Service", "Secret", "PersistentVolumeClaim", "StatefulSet", "ConfigMap")


def test_a_hub_may_die_after_any_write_of_a_jobs_life(hub_control_plane, tmp_path):
    install_hub_rights(hub_control_plane)
    with HubLife(hub_control_plane, tmp_path / "undisturbed") as life:
        wanted = [settled(life, *step) for step in STEPS]
        told = changes(life)
        writes = Counter(signature(life, write) for write in life.gate.writes)
    with KilledLife(hub_control_plane, tmp_path / "killed", writes) as life:
        for (act, is_reached), state in zip(STEPS, wanted, strict=True):
            act(life)
            live_on(life, is_reached, state)
        assert told == changes(life) == CHANGES
        life.journal.check_owners()
    assert {core(one) for one in writes if is_in_each_life(one)} <= {
        core(one) for one in life.deaths
    }


def live_on(life, is_reached, state):
    """Until all is as it was without a death."""

    def differences():
        found = snapshot(life)
        return [one for one in found if one not in state], [
            one for one in state if one not in found
        ]

    life.wait(lambda: is_reached(life) and snapshot(life) == state, differences)


class KilledLife(HubLife):
    """Its hub dies at each write once, or twice where it is made more than once."""

    def __init__(self, plane, folder, writes):
        super().__init__(plane, folder)
        self._writes = writes
        self.deaths = Counter()
        self._arm()

    def wait(self, holds, told=lambda: ""):
        """Meanwhile whoever died is followed by another one."""

        def look():
            if not self.hub.program.is_running():
                self.hub.program.kill()
                self._arm()
                self.hub.program.start()
            return holds()

        super().wait(look, told)

    def _arm(self):
        self.gate.strike(self._is_next, self.kill_hub, after=True)

    def _is_next(self, write):
        of = signature(self, write)
        if self.deaths[of] >= min(self._writes.get(of, 1), DEATHS_AT_ONE):
            return False
        self.deaths[of] += 1
        return True


def signature(life, write):
    """Which write it is: what of, and for a status or an Event what it tells."""
    path, body = re.sub("[0-9a-f]{8}", "*", life.plain(write.path)), write.body
    if path.endswith("/events"):
        return write.method, path, body["reason"]
    if path.endswith("/status"):
        status = body[-1]["value"]
        words = [
            (one["type"], one["status"], one["reason"]) for one in status.get("conditions", ())
        ]
        return write.method, path, *words
    if write.method == "POST":
        return write.method, path, re.sub("[0-9a-f]{8}", "*", life.plain(body["metadata"]["name"]))
    return write.method, path


def core(of):
    """The write without what is told in it, but for the name of what is made."""
    return of[:3] if of[0] == "POST" else of[:2]


def is_in_each_life(of):
    """Not what may be over before the next hub is there, nor what others have left on the server.

    The first is an Event about a state, and the end of what Kubernetes removes after its owner.
    """
    member = re.search("/memberclusters/([^/]+)", of[1])
    if member and member[1] not in SITES:
        return False
    if of[1].endswith("/events"):
        return of[2] in CHANGES
    return not (of[0] == "DELETE" and "/research/secrets/" in of[1])


# What happens, and by what one sees that it has.


def submit(life):
    life.submit()


def is_trained_by_both(life):
    return life.owned_by(*SITES) and is_true(life.job(), "Ready") and life.journal.rounds() > 1


def drain(life):
    life.cordon("uni-b")


def is_drained(life):
    member = life.objects.get("MemberCluster", "", life.member("uni-b"))
    return life.owned_by("uni-a") and is_true(member, "Drained")


def delete(life):
    life.objects.delete("SpesJob", life.namespace, JOB)


def is_deleted(life):
    gone = [("StatefulSet", life.namespace), ("Service", life.namespace)]
    gone += [(kind, place) for place in inside(life) for kind in ("TrainerAssignment", "Secret")]
    trains = any(one.peer for one in life.members.members.values())
    return not trains and not any(life.objects.list(*place) for place in gone)


STEPS = ((submit, is_trained_by_both), (drain, is_drained), (delete, is_deleted))


def settled(life, act, is_reached):
    """How everything is once nothing changes any more."""
    act(life)
    life.wait(lambda: is_reached(life))
    looks = deque(maxlen=LOOKS)

    def is_settled():
        looks.append(snapshot(life))
        return len(looks) == LOOKS and all(look == looks[0] for look in looks)

    life.wait(is_settled)
    return looks[0]


def snapshot(life):
    """Every object that the hub made, by name, with what must be the same in each life."""
    places = [
        *((kind, life.namespace) for kind in DERIVED),
        ("Secret", life.own),
        *(
            (kind, one)
            for kind in ("RoleBinding", "Secret", "TrainerAssignment")
            for one in inside(life)
        ),
    ]
    found = [
        (kind, life.plain(place), *told(life, obj))
        for kind, place in places
        for obj in life.objects.list(kind, place)
    ]
    found += [
        (kind, life.plain(obj["metadata"]["name"]), *states(obj))
        for kind, obj in (("SpesJob", life.job_if_any()), *members(life))
        if obj is not None
    ]
    trainers = [life.plain(name) for name, one in life.members.members.items() if one.peer]
    return [*sorted(found), ("trainers", *trainers)]


def inside(life):
    """The members' namespaces."""
    return [member_namespace(life.member(site)) for site in SITES]


def told(life, obj):
    """Name and substance of a derived object; what follows from a UID is left out."""
    name = re.sub("[0-9a-f]{8}", "*", life.plain(obj["metadata"]["name"]))
    if obj["kind"] == "TrainerAssignment":
        spec = obj["spec"]
        return name, spec["desired"], spec["experts"], spec["ownershipEpoch"], *states(obj)
    if name == f"{JOB}-ownership":
        stored = json.loads(life.plain(obj["data"]["ownership.json"]))
        return name, *(str(stored[key]) for key in ("epoch", "peers", "owners", "granted"))
    return (name,)


def states(obj):
    """Its conditions."""
    conditions = obj.get("status", {}).get("conditions", ())
    return [(one["type"], one["status"], one["reason"]) for one in conditions]


def members(life):
    """Both MemberClusters."""
    for site in SITES:
        yield "MemberCluster", life.objects.get("MemberCluster", "", life.member(site))


def changes(life):
    """What was said to have happened; how things stand may pass while no hub is there."""
    return {event["reason"] for event in life.events()} & CHANGES
