"""ClusterApi against servers that fail: nothing hangs, nothing is lost, a fault has its error."""

import asyncio
import contextlib
from datetime import timedelta

import pytest
from builders.scripted_api_server import (
    ScriptedApiServer,
    hangs,
    refuses,
    says,
    streams,
)
from spes_operator.errors import (
    ConfigError,
    ForbiddenError,
    GoneError,
    UnavailableError,
)
from spes_operator.k8s import cluster as cluster_module
from spes_operator.k8s import connection as connection_module
from spes_operator.k8s.cluster import ClusterApi
from spes_operator.k8s.connection import Connection

# Short enough for a test, long enough for loopback.
SILENCE = timedelta(seconds=0.2)
DEADLINE_SECONDS = 20.0


def config_map(name, version):
    return {"metadata": {"name": name, "namespace": "n", "resourceVersion": version}}


def event(kind, version):
    return {"type": kind, "object": config_map("a", version)}


@pytest.fixture
def play(tmp_path, monkeypatch):
    """Run a scenario with a ClusterApi of a scripted server."""
    monkeypatch.setattr(cluster_module, "PAUSE_SECONDS", 0.01)

    def run(scenario, *script, user=None):
        async def whole():
            async with asyncio.timeout(DEADLINE_SECONDS), ScriptedApiServer(*script) as server:
                connection = await Connection.open(server.kubeconfig(tmp_path / "config", user))
                try:
                    await scenario(ClusterApi(connection, silence=SILENCE), server)
                finally:
                    await connection.close()

        asyncio.run(whole())

    return run


async def watched(api, *, count):
    versions = []
    async with contextlib.aclosing(api.watch("ConfigMap", "n", from_version="5")) as watch:
        async for change in watch:
            versions.append(change.object["metadata"]["resourceVersion"])
            if len(versions) == count:
                return versions
    raise AssertionError("a watch ends only with an error")


@pytest.mark.parametrize("end", ["closed", "cut", "dropped", "silent"])
def test_an_ended_watch_goes_on_after_the_last_change(play, end):
    """A bookmark counts as a change: it only says how far the server is."""

    async def scenario(api, server):
        assert await watched(api, count=2) == ["6", "9"]
        assert [asked.query["resourceVersion"] for asked in server.asked] == ["5", "8"]
        assert {asked.query["watch"] for asked in server.asked} == {"true"}

    first = streams(event("ADDED", "6"), event("BOOKMARK", "8"), end=end)
    play(scenario, first, streams(event("MODIFIED", "9"), end="silent"))


@pytest.mark.parametrize(
    "answer",
    [
        refuses(410, "Expired"),
        streams({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}),
    ],
    ids=["at once", "later"],
)
def test_a_watch_beyond_history_is_gone(play, answer):
    async def scenario(api, server):
        with pytest.raises(GoneError):
            await watched(api, count=1)
        assert len(server.asked) == 1

    play(scenario, answer)


@pytest.mark.parametrize(
    "answer",
    [refuses(503), refuses(429), hangs, streams({"type": "ERROR", "object": {"code": 500}})],
    ids=["503", "429", "no answer", "error event"],
)
def test_a_watch_that_cannot_begin_again_ends(play, answer):
    async def scenario(api, _):
        with pytest.raises(UnavailableError):
            await watched(api, count=2)

    play(scenario, streams(event("ADDED", "6")), answer)


@pytest.mark.parametrize("answer", [hangs, refuses(500), says("text")], ids=["no", "500", "odd"])
def test_a_call_ends_at_its_deadline_or_with_the_fault(play, answer, monkeypatch):
    monkeypatch.setattr(connection_module, "DEADLINE", SILENCE)

    async def scenario(api, _):
        with pytest.raises(UnavailableError, match="GET /api/v1/namespaces/n/configmaps/a"):
            await api.get("ConfigMap", "n", "a")

    play(scenario, answer)


def test_a_server_that_is_not_there_is_unavailable(play):
    async def scenario(api, server):
        await server.__aexit__()
        with pytest.raises(UnavailableError):
            await api.get("ConfigMap", "n", "a")

    play(scenario, hangs)


def page(names, rest=""):
    return says(
        {
            "metadata": {"resourceVersion": "9", "continue": rest},
            "items": [config_map(name, "3") for name in names],
        }
    )


def test_pages_are_one_listing(play):
    async def scenario(api, server):
        items, version = await api.list("ConfigMap", "n")
        assert [item["metadata"]["name"] for item in items] == ["a", "b", "c"]
        assert version == "9"
        assert [asked.query.get("continue") for asked in server.asked] == [None, "more"]

    play(scenario, page(["a", "b"], "more"), page(["c"]))


def test_a_listing_that_takes_too_long_may_be_tried_again(play):
    async def scenario(api, _):
        with pytest.raises(UnavailableError, match="list again"):
            await api.list("ConfigMap", "n")

    play(scenario, page(["a"], "more"), refuses(410, "Expired"))


@pytest.mark.parametrize("renewed", [True, False])
def test_a_refused_token_is_read_again_once(play, tmp_path, renewed):
    token = tmp_path / "token"
    token.write_text("old\n")

    async def scenario(api, server):
        if renewed:
            token.write_text("new\n")
            assert await api.get("ConfigMap", "n", "a") == config_map("a", "3")
            assert [asked.authorization for asked in server.asked] == ["Bearer old", "Bearer new"]
        else:
            with pytest.raises(ForbiddenError):
                await api.get("ConfigMap", "n", "a")
            assert len(server.asked) == 1

    answers = (refuses(401, "Unauthorized"), says(config_map("a", "3")))
    play(scenario, *answers, user={"tokenFile": str(token)})


@pytest.mark.parametrize("text", ["", "[]", "{}", "clusters: ["], ids=repr)
def test_another_file_is_no_kubeconfig(tmp_path, text):
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigError, match="config gives no access"):
        asyncio.run(Connection.open(path))


def test_an_absent_kubeconfig_is_named(tmp_path):
    with pytest.raises(ConfigError, match="absent"):
        asyncio.run(Connection.open(tmp_path / "absent"))
