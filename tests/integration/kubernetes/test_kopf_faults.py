"""kopf as a feed, over API servers that fail: it always begins again, and only ever reads."""

import asyncio
import contextlib
from datetime import timedelta

import pytest
from builders.scripted_api_server import ScriptedApiServer, either, hangs, refuses, says, streams
from spes_operator.backoff import Backoff
from spes_operator.k8s import kopf_feed
from spes_operator.k8s.kopf_feed import KopfFeed, KopfSettings

# A feed begins in a thread, with a discovery; far above what that takes.
DEADLINE_SECONDS = 45.0


def config_map(name, version="5"):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": version},
    }


def listing(*names):
    return says({"metadata": {"resourceVersion": "5"}, "items": [config_map(n) for n in names]})


def event(name, version="7", kind="MODIFIED"):
    return {"type": kind, "object": config_map(name, version)}


@pytest.fixture
def seen_of(tmp_path, monkeypatch):
    """Names that a feed brings from a scripted server, until `count` different ones are there."""
    soon = Backoff(first=timedelta(milliseconds=10), longest=timedelta(seconds=30))
    monkeypatch.setattr(kopf_feed, "_RETRIES", soon)
    monkeypatch.setattr(kopf_feed, "_BACKOFFS", (0.01, 0.01))
    monkeypatch.setattr(kopf_feed, "_INACTIVE_SECONDS", 0.5)
    monkeypatch.setattr(kopf_feed, "_REQUEST_SECONDS", 0.5)
    monkeypatch.setattr(kopf_feed, "_CONNECT_SECONDS", 0.5)

    def run(listings, watches, *, count, token=None, faults=()):
        names, script = [], either(listings=listings, watches=watches)

        async def whole():
            enough = asyncio.Event()

            def note(event):
                names.append(event.object["metadata"]["name"])
                if token is not None:
                    token.write_text("new\n")
                if len(set(names)) >= count:
                    enough.set()

            async with (
                asyncio.timeout(DEADLINE_SECONDS),
                ScriptedApiServer(script, faults=faults) as server,
            ):
                user = {} if token is None else {"tokenFile": str(token)}
                path = server.kubeconfig(tmp_path / "config", user)
                feed = KopfFeed(KopfSettings(kubeconfig=path))
                running = asyncio.create_task(feed.run({"ConfigMap": note}, "n"))
                await enough.wait()
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running
                assert {asked.method for asked in server.asked} == {"GET"}
                return server.asked

        return names, asyncio.run(whole())

    return run


SILENT = streams(end="silent")


def test_objects_and_their_changes_arrive(seen_of):
    watch = streams(event("b"), event("c", kind="DELETED"), end="silent")
    names, asked = seen_of([listing("a")], [watch], count=3)
    assert names == ["a", "b", "c"]
    assert {one.path for one in asked} == {"/api/v1/namespaces/n/configmaps"}


@pytest.mark.parametrize("end", ["closed", "dropped", "silent"])
def test_an_ended_watch_goes_on(seen_of, end):
    watches = [streams(event("b", "8"), end=end), streams(event("c", "9"), end="silent")]
    names, asked = seen_of([listing("a")], watches, count=3)
    assert set(names) == {"a", "b", "c"}
    assert [one.query.get("resourceVersion") for one in asked[:3]] == [None, "5", "8"]


@pytest.mark.parametrize(
    "fault",
    [
        streams({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}),
        streams({"type": "ERROR", "object": {"code": 500, "reason": "InternalError"}}),
        refuses(409, "Conflict"),
        refuses(410, "Expired"),
        refuses(429, "TooManyRequests"),
        refuses(500),
        hangs,
    ],
    ids=["410 later", "500 later", "409", "410", "429", "500", "no answer"],
)
def test_a_faulty_watch_begins_again(seen_of, fault):
    names, _ = seen_of([listing("a")], [fault, streams(event("b"), end="silent")], count=2)
    assert set(names) == {"a", "b"}


@pytest.mark.parametrize(
    "fault", [refuses(403, "Forbidden"), refuses(500), hangs], ids=["403", "500", "no answer"]
)
def test_a_refused_listing_is_asked_for_again(seen_of, fault):
    names, _ = seen_of([fault, listing("a")], [SILENT], count=1)
    assert names[0] == "a"


@pytest.mark.parametrize(
    "fault",
    [refuses(403, "Forbidden"), refuses(404), refuses(415), refuses(500), says({"resources": []})],
    ids=["403", "404", "415", "500", "not served yet"],
)
def test_kinds_that_are_not_found_at_the_start_are_looked_for_again(seen_of, caplog, fault):
    """Kopf looks once: without them it would live on and watch nothing."""
    names, _ = seen_of([listing("a")], [SILENT], count=1, faults=[fault, fault])
    assert names[0] == "a"
    assert "kopf failed" in caplog.text


def test_a_refused_token_is_read_again(seen_of, tmp_path):
    token = tmp_path / "token"
    token.write_text("old\n")
    _, asked = seen_of(
        [listing("a")],
        [refuses(401, "Unauthorized"), streams(event("b"), end="silent")],
        count=2,
        token=token,
    )
    assert [one.authorization for one in asked] == ["Bearer old", "Bearer old", "Bearer new"]
