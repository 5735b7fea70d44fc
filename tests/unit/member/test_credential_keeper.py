"""Renewing the token of the hub: against fakes, with every refusal there is."""

import asyncio
import base64
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from builders.clock import FakeClock
from builders.tokens import jwt
from spes_operator.errors import ConfigError, ForbiddenError, UnauthorizedError, UnavailableError
from spes_operator.k8s.memory import MemoryApi
from spes_operator.member import credential_keeper
from spes_operator.member.credential_keeper import CredentialKeeper
from spes_operator.member.hub_access import HubFiles

DAY = 86_400
INVITED = jwt(iat=1_000, exp=1_000 + DAY)
RENEWED = jwt(iat=2_000, exp=2_000 + 7 * DAY)


class Hub:
    """Gives tokens, or says why not; what it gives is what the agent asks with."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        self.reloads = 0

    async def request_token(self, namespace, account, spec):
        self.asked.append((namespace, account, spec["expirationSeconds"]))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return {"token": answer}

    async def renew_credentials(self):
        self.reloads += 1


def invitation(token, server="https://hub.example"):
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"user": "u", "cluster": "k"}}],
        "clusters": [{"name": "k", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": token}}],
    }


@pytest.fixture
def files(tmp_path):
    (tmp_path / "invitation").write_text(yaml.safe_dump(invitation(INVITED)))
    return HubFiles(invitation=tmp_path / "invitation", state=tmp_path / "state")


def keeper_of(files, local):
    return CredentialKeeper("uni-a", files, local, namespace="spes", clock=FakeClock())


def token_in(files):
    return (files.state / "token").read_text()


async def events(local):
    return [event["reason"] for event in (await local.list("Event", "spes")).items]


def test_invitation_is_used_once_and_then_the_agents_own_token(files):
    async def scenario():
        local, hub = MemoryApi(), Hub(RENEWED)
        keeper = keeper_of(files, local)
        await keeper.prepare()
        assert (token_in(files), keeper.report()) == (INVITED, None)
        await keeper.renew(hub)
        assert hub.asked == [("spes-member-uni-a", "agent", 604_800)]
        assert (token_in(files), hub.reloads) == (RENEWED, 1)
        secret = await local.get("Secret", "spes", "spes-hub-credential")
        assert base64.b64decode(secret["data"]["token"]).decode() == RENEWED
        report = keeper.report()
        ends = datetime.fromtimestamp(2_000 + 7 * DAY, UTC).isoformat()
        assert (report.persisted, report.expires_at) == (True, ends.replace("+00:00", "Z"))

    asyncio.run(scenario())


def test_agents_kubeconfig_names_the_token_file_and_nothing_secret(files):
    asyncio.run(keeper_of(files, MemoryApi()).prepare())
    written = files.kubeconfig.read_text()
    assert INVITED not in written
    document = yaml.safe_load(written)
    assert document["users"][0]["user"] == {"tokenFile": str(files.state / "token")}
    assert document["clusters"][0]["cluster"]["server"] == "https://hub.example"
    assert {path.stat().st_mode & 0o777 for path in files.state.iterdir()} == {0o600}


@pytest.mark.parametrize(("invited", "used"), [(INVITED, RENEWED), (jwt(iat=9_000, exp=9_900), 0)])
def test_newest_of_invitation_and_stored_token_is_used(files, invited, used):
    async def scenario():
        local = MemoryApi()
        first = keeper_of(files, local)
        await first.prepare()
        await first.renew(Hub(RENEWED))
        files.invitation.write_text(yaml.safe_dump(invitation(invited)))
        await keeper_of(files, local).prepare()
        assert token_in(files) == (used or invited)

    asyncio.run(scenario())


def test_stored_token_serves_without_a_readable_one_in_the_invitation(files):
    async def scenario():
        local = MemoryApi()
        first = keeper_of(files, local)
        await first.prepare()
        await first.renew(Hub(RENEWED))
        files.invitation.write_text(yaml.safe_dump(invitation("used-up")))
        await keeper_of(files, local).prepare()
        assert token_in(files) == RENEWED

    asyncio.run(scenario())


def test_without_any_token_the_invitation_is_to_be_renewed(files):
    files.invitation.write_text(yaml.safe_dump(invitation("used-up")))
    with pytest.raises(ConfigError, match="spes invite uni-a --renew"):
        asyncio.run(keeper_of(files, MemoryApi()).prepare())


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "[]",
        "a: b",
        "users: {",
        "current-context: c",
        yaml.safe_dump(invitation("t") | {"users": [{"name": "u", "user": None}]}),
    ],
)
def test_invitation_that_is_no_kubeconfig_is_refused(files, text):
    files.invitation.unlink()
    if text is not None:
        files.invitation.write_text(text)
    with pytest.raises(ConfigError, match="kubeconfig"):
        asyncio.run(keeper_of(files, MemoryApi()).prepare())


def test_token_that_the_hub_forgot_is_told_once_and_replaced_by_a_new_invitation(files):
    async def scenario():
        local, dead = MemoryApi(), UnauthorizedError("401")
        keeper = keeper_of(files, local)
        await keeper.prepare()
        hub = Hub(dead)
        for _ in range(3):
            await keeper.renew(hub)
        assert await events(local) == ["HubCredentialRefused"]
        (event,) = (await local.list("Event", "spes")).items
        assert event["involvedObject"]["apiVersion"] == "v1"  # a Secret's
        assert keeper.failures == 3
        again = jwt(iat=9_000, exp=9_900)
        files.invitation.write_text(yaml.safe_dump(invitation(again)))
        await keeper.renew(hub)
        assert (token_in(files), hub.reloads) == (again, 1)
        await keeper.renew(Hub(RENEWED))
        assert (keeper.failures, token_in(files)) == (0, RENEWED)

    asyncio.run(scenario())


def test_good_token_is_used_again_after_a_hub_that_refused_every_one_for_a_moment(files):
    async def scenario():
        local, refusal = MemoryApi(), UnauthorizedError("401")
        keeper = keeper_of(files, local)
        await keeper.prepare()
        await keeper.renew(Hub(RENEWED))
        hub = Hub(refusal, refusal, refusal, jwt(iat=3_000, exp=3_000 + DAY))
        used = []
        while keeper.failures or not used:
            await keeper.renew(hub)
            used.append(token_in(files))
        assert used[:3] == [INVITED, INVITED, RENEWED]

    asyncio.run(scenario())


def test_renewal_that_is_refused_three_times_is_told(files):
    async def scenario():
        local = MemoryApi()
        keeper = keeper_of(files, local)
        await keeper.prepare()
        hub = Hub(ForbiddenError("403"))
        for count in range(5):
            await keeper.renew(hub)
            assert len(await events(local)) == (count >= 2)
        assert await events(local) == ["CredentialRenewalRefused"]
        assert token_in(files) == INVITED

    asyncio.run(scenario())


def test_hub_that_does_not_answer_is_told_once_and_again_when_it_is_lost_again(files):
    async def scenario():
        local, cut = MemoryApi(), UnavailableError("cut")
        keeper = keeper_of(files, local)
        await keeper.prepare()
        for life in (1, 2):
            for _ in range(5):
                await keeper.renew(Hub(cut))
            assert await events(local) == ["HubUnreachable"] * life
            await keeper.renew(Hub(RENEWED))
        (event, _) = (await local.list("Event", "spes")).items
        assert "let pods of this namespace reach the address in the invitation" in event["message"]

    asyncio.run(scenario())


def test_an_invitation_to_another_address_ends_the_use_of_the_old_one(files):
    async def scenario():
        keeper = keeper_of(files, MemoryApi())
        await keeper.prepare()
        there = "https://elsewhere.example"
        files.invitation.write_text(yaml.safe_dump(invitation(INVITED, there)))
        async with asyncio.timeout(30):
            await keeper.run(Hub(RENEWED), lambda: None)
        await keeper.prepare()
        document = yaml.safe_load(files.kubeconfig.read_text())
        assert document["clusters"][0]["cluster"]["server"] == there

    asyncio.run(scenario())


def test_a_new_invitation_is_taken_up_long_before_the_next_renewal(files, monkeypatch):
    monkeypatch.setattr(credential_keeper, "_LOOK_EVERY", timedelta(milliseconds=10))
    latest = jwt(iat=10_000, exp=10_000 + DAY)

    async def scenario():
        keeper, done = keeper_of(files, MemoryApi()), asyncio.Event()
        await keeper.prepare()
        await keeper.renew(Hub(RENEWED))
        assert keeper.due_in == timedelta(hours=1)
        hub = Hub(UnauthorizedError("revoked"), latest)
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(keeper.run(hub, done.set))
            files.invitation.write_text(yaml.safe_dump(invitation(jwt(iat=9_000, exp=9_900))))
            await done.wait()
            running.cancel()
        assert (token_in(files), len(hub.asked)) == (latest, 2)

    asyncio.run(scenario())


def test_nothing_is_renewed_early_while_the_invitation_stays(files, monkeypatch):
    monkeypatch.setattr(credential_keeper, "_LOOK_EVERY", timedelta(milliseconds=1))

    async def scenario():
        keeper, hub = keeper_of(files, MemoryApi()), Hub(RENEWED)
        await keeper.prepare()
        await keeper.renew(hub)
        keeper.due_in = timedelta(milliseconds=20)
        done = asyncio.Event()
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(keeper.run(hub, done.set))
            await done.wait()
            running.cancel()
        assert len(hub.asked) == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("text", [yaml.safe_dump(invitation(RENEWED)), "{", ""])
def test_another_token_or_no_invitation_leads_nowhere_else(files, text):
    asyncio.run(keeper_of(files, MemoryApi()).prepare())
    files.invitation.write_text(text)
    assert not files.lead_elsewhere()


@pytest.mark.parametrize("answer", [UnavailableError("cut"), "opaque"])
def test_failed_renewal_keeps_the_token(files, answer):
    async def scenario():
        local = MemoryApi()
        keeper = keeper_of(files, local)
        await keeper.prepare()
        await keeper.renew(Hub(answer))
        assert (token_in(files), keeper.failures) == (INVITED, 1)
        assert await events(local) == []

    asyncio.run(scenario())


def test_token_is_renewed_when_it_is_due_and_not_before(files):
    async def scenario():
        keeper = keeper_of(files, MemoryApi())
        await keeper.prepare()
        assert keeper.due_in == timedelta()
        await keeper.renew(Hub(RENEWED))
        assert keeper.due_in == timedelta(hours=1)
        await keeper.renew(Hub(jwt(iat=0, exp=600)))
        assert keeper.due_in == timedelta(minutes=5)
        await keeper.renew(Hub(UnavailableError("cut")))
        assert timedelta(seconds=7) < keeper.due_in <= timedelta(seconds=15)

    asyncio.run(scenario())
