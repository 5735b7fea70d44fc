"""CachedApi: few reads of the server, and never an object older than what was written through."""

import asyncio
import contextlib
from datetime import timedelta

import pytest
from builders.clock import FakeClock
from spes_operator.errors import ConflictError, NotFoundError, UnavailableError
from spes_operator.k8s.api import WatchEvent
from spes_operator.k8s.cached import CachedApi, Kept
from spes_operator.k8s.follow import FollowFeed
from spes_operator.k8s.memory import MemoryApi

MAX_AGE = timedelta(seconds=20)
KINDS = {
    "ConfigMap": Kept(max_age=MAX_AGE),
    "Lease": Kept(max_age=MAX_AGE, label="member"),
    "Secret": Kept(max_age=MAX_AGE, label="job", by_namespace=True, contents=False),
}
DEADLINE_SECONDS = 10.0


class Server(MemoryApi):
    """An API server that counts reads, and can be away or answer a listing late."""

    def __init__(self):
        super().__init__()
        self.reads = []
        self.is_away = False
        self.listed = lambda: None

    async def get(self, kind, namespace, name):
        self._asked("get", kind)
        return await super().get(kind, namespace, name)

    async def list(self, kind, namespace="", labels=None):
        self._asked("list", kind)
        listing = await super().list(kind, namespace, labels)
        self.listed()
        await asyncio.sleep(0)
        return listing

    async def patch_status(self, kind, namespace, name, status, *, uid=""):
        answer = await super().patch_status(kind, namespace, name, status, uid=uid)
        if self.is_away:
            raise UnavailableError("the answer is lost")
        return answer

    def _asked(self, verb, kind):
        if self.is_away:
            raise UnavailableError("away")
        self.reads.append(f"{verb} {kind}")


class World:
    def __init__(self):
        self.server, self.clock = Server(), FakeClock()
        self.api = CachedApi(self.server, KINDS, self.clock)

    async def names(self, labels=None, kind="ConfigMap"):
        return [obj["metadata"]["name"] for obj in (await self.api.list(kind, "n", labels)).items]

    async def data(self, name="a"):
        return (await self.api.get("ConfigMap", "n", name)).get("data")


def obj(name="a", kind="ConfigMap", labels=None, **data):
    metadata = {"namespace": "n", "name": name, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": data}


def play(scenario):
    async def whole():
        async with asyncio.timeout(DEADLINE_SECONDS):
            await scenario(World())

    asyncio.run(whole())


def changed(found, **data):
    return found | {"data": data}


def test_reads_are_answered_from_one_listing():
    async def scenario(world):
        await world.server.create("x", obj(labels={"j": "1"}, k="1"))
        await world.server.create("x", obj("b"))
        for _ in range(3):
            assert await world.names() == ["a", "b"]
            assert await world.names({"j": "1"}) == await world.names({"j": None}) == ["a"]
            assert await world.data() == {"k": "1"}
            with pytest.raises(NotFoundError):
                await world.data("c")
        assert world.server.reads == ["list ConfigMap"]

    play(scenario)


def test_readers_that_come_together_share_one_listing():
    async def scenario(world):
        await asyncio.gather(*(world.names() for _ in range(10)))
        assert world.server.reads == ["list ConfigMap"]

    play(scenario)


def test_what_is_read_may_be_changed():
    async def scenario(world):
        made = await world.api.create("x", obj(k="1"))
        await world.names()
        made["data"]["k"] = "2"
        (await world.api.get("ConfigMap", "n", "a"))["data"]["k"] = "2"
        (await world.api.list("ConfigMap")).items[0]["data"]["k"] = "2"
        assert await world.data() == {"k": "1"}

    play(scenario)


def test_own_writes_are_seen_at_once():
    async def scenario(world):
        assert await world.names() == []
        made = await world.api.create("x", obj(k="1"))
        assert await world.data() == {"k": "1"}
        await world.api.replace("x", changed(made, k="2"))
        assert await world.data() == {"k": "2"}
        await world.api.apply("y", obj("b", k="3"))
        assert await world.data("b") == {"k": "3"}
        await world.api.patch_status("ConfigMap", "n", "a", {"s": 1})
        assert (await world.api.get("ConfigMap", "n", "a"))["status"] == {"s": 1}
        assert world.server.reads == ["list ConfigMap"]
        await world.api.delete("ConfigMap", "n", "a")
        assert await world.names() == ["b"]

    play(scenario)


def test_late_news_does_not_take_a_write_back():
    async def scenario(world):
        await world.names()
        made = await world.api.create("x", obj(k="1"))
        await world.api.replace("x", changed(made, k="2"))
        world.api.note("ConfigMap", WatchEvent(type="ADDED", object=made))
        assert await world.data() == {"k": "2"}
        await world.api.delete("ConfigMap", "n", "a")
        assert await world.names() == []
        world.api.note("ConfigMap", WatchEvent(type="MODIFIED", object=made))
        assert await world.names() == []

    play(scenario)


def test_news_that_overtakes_a_writes_answer_stays():
    """Another's change after ours may be heard of before our own answer is."""

    async def scenario(world):
        made = await world.api.create("x", obj(k="1"))
        await world.names()
        write = world.server.replace

        async def replace_slowly(owner, wanted):
            answer = await write(owner, wanted)
            newer = await write(owner, changed(answer, k="3"))
            world.api.note("ConfigMap", WatchEvent(type="MODIFIED", object=newer))
            return answer

        world.server.replace = replace_slowly
        await world.api.replace("x", changed(made, k="2"))
        assert await world.data() == {"k": "3"}

    play(scenario)


@pytest.mark.parametrize("later", ["created", "deleted", "changed"])
def test_what_happens_during_a_listing_is_not_lost(later):
    async def scenario(world):
        made = await world.server.create("x", obj(k="1"))

        def happen():
            world.server.listed = lambda: None
            version = str(int(made["metadata"]["resourceVersion"]) + 1)
            event, name = ("ADDED", "b") if later == "created" else ("MODIFIED", "a")
            news = obj(name, k="2")
            news["metadata"]["resourceVersion"] = version
            event = "DELETED" if later == "deleted" else event
            world.api.note("ConfigMap", WatchEvent(type=event, object=news))

        world.server.listed = happen
        expected = {"created": ["a", "b"], "deleted": [], "changed": ["a"]}
        assert await world.names() == expected[later]
        if later == "changed":
            assert await world.data() == {"k": "2"}

    play(scenario)


def test_others_writes_are_seen_with_their_event():
    async def scenario(world):
        made = await world.server.create("x", obj(k="1"))
        await world.names()
        heard = asyncio.Event()
        handlers = {"ConfigMap": lambda event: event.type != "ADDED" and heard.set()}
        feeding = asyncio.create_task(world.api.fed_by(FollowFeed(world.server)).run(handlers, ""))
        while len(world.server.reads) < 2:  # the feed's own listing
            await asyncio.sleep(0)
        await world.server.replace("y", changed(made, k="2"))
        await heard.wait()
        assert await world.data() == {"k": "2"}
        heard.clear()
        await world.server.delete("ConfigMap", "n", "a")
        await heard.wait()
        assert await world.names() == []
        assert world.server.reads == ["list ConfigMap"] * 2
        feeding.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await feeding

    play(scenario)


def test_an_object_made_anew_under_a_name_is_the_new_one():
    async def scenario(world):
        old = await world.server.create("x", obj(k="1"))
        await world.names()
        await world.server.delete("ConfigMap", "n", "a")
        new = await world.server.create("x", obj(k="2"))
        world.api.note("ConfigMap", WatchEvent(type="ADDED", object=new))
        world.api.note("ConfigMap", WatchEvent(type="DELETED", object=old))
        assert await world.data() == {"k": "2"}

    play(scenario)


def test_without_a_watch_reads_are_late_by_the_age_and_no_more():
    async def scenario(world):
        await world.names()
        await world.server.create("x", obj())
        world.clock.advance(MAX_AGE.total_seconds() - 1)
        assert await world.names() == []
        world.clock.advance(1)
        assert await world.names() == ["a"]
        await world.server.delete("ConfigMap", "n", "a")
        world.clock.advance(MAX_AGE.total_seconds())
        assert await world.names() == []

    play(scenario)


def test_a_server_that_is_away_is_said_to_be():
    async def scenario(world):
        await world.server.create("x", obj())
        assert await world.names() == ["a"]
        world.server.is_away = True
        world.clock.advance(MAX_AGE.total_seconds())
        for _ in range(2):
            with pytest.raises(UnavailableError):
                await world.names()
        world.server.is_away = False
        assert await world.names() == ["a"]

    play(scenario)


def test_after_a_conflict_the_server_is_read():
    async def scenario(world):
        made = await world.api.create("x", obj(k="1"))
        await world.names()
        await world.server.replace("y", changed(made, k="2"))
        assert await world.data() == {"k": "1"}  # no event has come
        with pytest.raises(ConflictError):
            await world.api.replace("x", changed(made, k="3"))
        assert await world.data() == {"k": "2"}

    play(scenario)


def test_a_write_whose_answer_is_lost_is_seen():
    async def scenario(world):
        await world.api.create("x", obj())
        await world.names()
        world.server.is_away = True
        with pytest.raises(UnavailableError):
            await world.api.patch_status("ConfigMap", "n", "a", {"s": 1})
        world.server.is_away = False
        assert (await world.api.get("ConfigMap", "n", "a"))["status"] == {"s": 1}

    play(scenario)


def test_a_write_during_a_listing_is_not_settled_by_it():
    async def scenario(world):
        await world.server.create("x", obj())
        deleting = []

        def delete_meanwhile():
            world.server.listed = lambda: None
            deleting.append(asyncio.create_task(world.api.delete("ConfigMap", "n", "a")))

        world.server.listed = delete_meanwhile
        await world.names()
        await deleting[0]
        assert await world.names() == []

    play(scenario)


def test_only_labelled_objects_are_kept():
    async def scenario(world):
        await world.server.create("x", obj("a", "Lease", {"member": "m"}))
        await world.server.create("x", obj("b", "Lease"))
        for _ in range(2):
            assert await world.names({"member": None}, "Lease") == ["a"]
        assert world.server.reads == ["list Lease"]
        assert await world.names(kind="Lease") == ["a", "b"]
        assert (await world.api.get("Lease", "n", "b"))["metadata"]["name"] == "b"
        found = await world.server.get("Lease", "n", "a")
        found["metadata"]["labels"] = {}
        await world.api.replace("x", found)
        assert await world.names({"member": None}, "Lease") == []

    play(scenario)


def test_secrets_are_kept_by_namespace_and_without_their_contents():
    async def scenario(world):
        made = await world.api.create("x", obj("a", "Secret", {"job": "1"}, token="t"))
        assert made["data"] == {"token": "t"}
        await world.api.create("x", obj("b", "Secret", {"job": "2"}))
        for _ in range(2):
            (kept,) = (await world.api.list("Secret", "n", {"job": "1"})).items
            assert "data" not in kept
            assert (await world.api.list("Secret", "m", {"job": None})).items == []
        assert world.server.reads == ["list Secret"] * 2
        assert (await world.api.get("Secret", "n", "a"))["data"] == {"token": "t"}
        assert "'t'" not in str([place.replica._held for place in world.api._places.values()])
        await world.api.delete("Secret", "n", "a")
        assert await world.names({"job": None}, "Secret") == ["b"]
        await world.api.list("Secret", "", {"job": None})
        assert world.server.reads[-2:] == ["list Secret"] * 2

    play(scenario)


def test_namespaces_that_nobody_asks_for_are_forgotten():
    async def scenario(world):
        for number in range(50):
            await world.api.list("Secret", f"n{number}", {"job": None})
            world.clock.advance(MAX_AGE.total_seconds())
        assert len(world.api._places) <= 4

    play(scenario)


def test_other_kinds_pass_through():
    async def scenario(world):
        await world.api.create("x", obj("a", "Pod"))
        await world.api.get("Pod", "n", "a")
        await world.api.list("Pod", "n")
        assert world.server.reads == ["get Pod", "list Pod"]

    play(scenario)
