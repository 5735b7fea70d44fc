"""Rights, invitations and heartbeats of members, over an API in memory."""

import asyncio

import pytest
from builders.clock import FakeClock
from spes_operator.errors import ForbiddenError, NotFoundError
from spes_operator.hub.heartbeats import Heartbeats
from spes_operator.hub.member_pass import MemberPass
from spes_operator.hub.roster import Roster
from spes_operator.k8s.memory import MemoryApi

NAMESPACE = "spes-member-uni-a"
SPES = "spes.dev/v1alpha1"


class CountingApi(MemoryApi):
    """Counts writes; refuses RoleBindings with `refusal` if there is one."""

    def __init__(self, clock):
        super().__init__(clock)
        self.writes = []
        self.refusal = None

    async def apply(self, owner, obj):
        self.writes.append((obj["kind"], obj["metadata"]["name"]))
        if obj["kind"] == "RoleBinding" and self.refusal is not None:
            raise self.refusal
        return await super().apply(owner, obj)

    async def delete(self, kind, namespace, name):
        self.writes.append((kind, name))
        await super().delete(kind, namespace, name)

    async def patch_status(self, kind, namespace, name, status, *, uid=""):
        self.writes.append((kind, name))
        return await super().patch_status(kind, namespace, name, status, uid=uid)


class Hub:
    """A hub that passes over its members when told to."""

    def __init__(self):
        self.clock = FakeClock()
        self.api = CountingApi(self.clock)
        self.restart()

    def restart(self):
        roster = Roster(self.api, Heartbeats(self.clock.monotonic()))
        self.members = MemberPass(self.api, roster, self.clock)

    async def passed(self):
        """One pass; what it wrote."""
        self.api.writes.clear()
        await self.members.reconcile()
        return list(self.api.writes)

    async def member(self, *, accepted=False, **annotations):
        names = {f"spes.dev/{key}": value for key, value in annotations.items()}
        metadata = {"name": "uni-a", "annotations": names}
        obj = {"apiVersion": SPES, "kind": "MemberCluster", "metadata": metadata}
        await self.api.apply("admin", obj | {"spec": {"accepted": accepted}})

    async def report(self, *, cluster_id="c1", **credential):
        metadata = {"name": "report", "namespace": NAMESPACE}
        obj = {"apiVersion": SPES, "kind": "MemberReport", "metadata": metadata}
        await self.api.apply("uni-a", obj)
        status = {"clusterID": cluster_id} | ({"credential": credential} if credential else {})
        await self.api.patch_status("MemberReport", NAMESPACE, "report", status)

    async def join_token(self):
        metadata = {"name": "join-token", "namespace": NAMESPACE}
        await self.api.apply("admin", {"apiVersion": "v1", "kind": "Secret", "metadata": metadata})

    async def beat(self, text, *, namespace=NAMESPACE, name="heartbeat"):
        """A new beat, as a watch brings it; whether the hub must look at once."""
        metadata = {"namespace": namespace, "name": name, "labels": {"spes.dev/member": "uni-a"}}
        lease = {"kind": "Lease", "metadata": metadata, "spec": {"renewTime": text}}
        return self.members.hear(await self.api.apply("uni-a", lease))

    async def has(self, kind, name):
        try:
            await self.api.get(kind, NAMESPACE, name)
        except NotFoundError:
            return False
        return True

    async def condition(self, kind):
        cluster = await self.api.get("MemberCluster", "", "uni-a")
        return next(one for one in cluster["status"]["conditions"] if one["type"] == kind)


@pytest.fixture
def hub():
    return Hub()


def test_rights_come_with_acceptance_and_go_with_it(hub):
    async def scenario():
        await hub.member()
        await hub.passed()
        assert not await hub.has("RoleBinding", "spes-member-agent")
        await hub.member(accepted=True)
        await hub.passed()
        binding = await hub.api.get("RoleBinding", NAMESPACE, "spes-member-agent")
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "agent", "namespace": NAMESPACE}
        ]
        assert (await hub.condition("Accepted"))["status"] == "True"
        await hub.member(accepted=False)
        await hub.passed()
        assert not await hub.has("RoleBinding", "spes-member-agent")

    asyncio.run(scenario())


def test_a_steady_member_costs_no_write(hub):
    async def scenario():
        await hub.member(accepted=True)
        await hub.passed()
        assert await hub.passed() == []

    asyncio.run(scenario())


def test_rights_that_were_lost_while_the_hub_was_down_are_given_again(hub):
    async def scenario():
        await hub.member(accepted=True)
        await hub.passed()
        await hub.api.delete("RoleBinding", NAMESPACE, "spes-member-agent")
        hub.restart()
        await hub.passed()
        assert await hub.has("RoleBinding", "spes-member-agent")

    asyncio.run(scenario())


def test_a_new_invitation_gives_rights_again(hub):
    """Its namespace may be another one of that name."""

    async def scenario():
        await hub.member(accepted=True, invitation="1")
        await hub.passed()
        await hub.api.delete("RoleBinding", NAMESPACE, "spes-member-agent")
        await hub.member(accepted=True, invitation="2")
        await hub.passed()
        assert await hub.has("RoleBinding", "spes-member-agent")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [(NotFoundError("no namespace"), "NotInvited"), (ForbiddenError("no"), "AccessNotGiven")],
    ids=["namespace", "rights"],
)
def test_rights_that_cannot_be_given_are_told_and_tried_again(hub, refusal, reason):
    async def scenario():
        await hub.member(accepted=True)
        hub.api.refusal = refusal
        await hub.passed()
        told = await hub.condition("Accepted")
        assert (told["status"], told["reason"]) == ("False", reason)
        hub.api.refusal = None
        assert await hub.passed() == []  # not at once: a person must act first
        hub.clock.advance(31)
        await hub.passed()
        assert (await hub.condition("Accepted"))["status"] == "True"

    asyncio.run(scenario())


def test_the_invitation_ends_once_the_agent_keeps_a_token_of_its_own(hub):
    async def scenario():
        await hub.member(accepted=True, invitation="1")
        await hub.join_token()
        for credential in ({}, {"expiresAt": "2026-01-08T00:00:00Z", "persisted": False}):
            await hub.report(**credential)
            await hub.passed()
            assert await hub.has("Secret", "join-token")
        await hub.report(expiresAt="2026-01-08T00:00:00Z", persisted=True)
        assert ("Secret", "join-token") in await hub.passed()
        assert ("Secret", "join-token") not in await hub.passed()

    asyncio.run(scenario())


def test_a_renewed_invitation_outlives_the_report_that_it_replaces(hub):
    async def scenario():
        before = {"expiresAt": "2026-01-08T00:00:00Z", "persisted": True}
        await hub.report(**before)
        await hub.member(accepted=True, invitation="2", replaces=before["expiresAt"])
        await hub.join_token()
        await hub.passed()
        assert await hub.has("Secret", "join-token")
        await hub.report(expiresAt="2026-02-08T00:00:00Z", persisted=True)
        await hub.passed()
        assert not await hub.has("Secret", "join-token")

    asyncio.run(scenario())


def test_another_cluster_ends_no_invitation(hub):
    async def scenario():
        await hub.member(accepted=True, invitation="1")
        await hub.report(cluster_id="c1")
        await hub.passed()
        await hub.join_token()
        await hub.report(cluster_id="c2", expiresAt="2026-01-08T00:00:00Z", persisted=True)
        await hub.passed()
        assert await hub.has("Secret", "join-token")

    asyncio.run(scenario())


def test_a_beat_of_a_member_that_lives_is_no_reason_to_look(hub):
    async def scenario():
        await hub.member(accepted=True)
        await hub.report()
        assert await hub.beat("a")  # nothing is known of it yet
        await hub.passed()
        for number in range(9):
            hub.clock.advance(10)
            assert not await hub.beat(str(number))
        await hub.passed()
        assert (await hub.condition("Ready"))["status"] == "True"

    asyncio.run(scenario())


def test_the_first_beat_after_a_silence_is_looked_at(hub):
    async def scenario():
        await hub.member(accepted=True)
        await hub.report()
        await hub.beat("a")
        await hub.passed()
        hub.clock.advance(41)
        await hub.passed()
        assert (await hub.condition("Ready"))["reason"] == "HeartbeatLost"
        assert await hub.beat("b")
        await hub.passed()
        assert (await hub.condition("Ready"))["reason"] == "Returning"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "place", [{"namespace": "spes-member-uni-b"}, {"namespace": "research"}, {"name": "other"}]
)
def test_nobody_beats_for_another_member(hub, place):
    """Labels are the writer's own word; the namespace is not."""

    async def scenario():
        await hub.member(accepted=True)
        await hub.report()
        await hub.beat("a")
        await hub.passed()
        hub.clock.advance(41)
        await hub.beat("b", **place)
        await hub.passed()
        assert (await hub.condition("Ready"))["reason"] == "HeartbeatLost"

    asyncio.run(scenario())
