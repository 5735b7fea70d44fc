import asyncio
import json
import stat

import pytest
from builders.clock import FakeClock
from spes_operator.errors import (
    AlreadyExistsError,
    ConfigError,
    ConflictError,
    GoneError,
    NotFoundError,
)
from spes_operator.k8s import memory
from spes_operator.k8s.memory import MemoryApi


def config_map(name="a", *, version="", labels=None, **data):
    metadata = {"name": name, "namespace": "research", "labels": labels or {}}
    if version:
        metadata["resourceVersion"] = version
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def next_events(api, count, from_version, kind="ConfigMap"):
    events = []
    async for event in api.watch(kind, from_version=from_version):
        events.append(event)
        if len(events) == count:
            break
    return events


def run(coroutine):
    return asyncio.run(coroutine)


def test_create_gives_identity_and_refuses_a_second():
    async def scenario():
        api = MemoryApi(FakeClock())
        made = await api.create("hub", config_map(x="1"))
        assert made["metadata"]["uid"]
        assert made["metadata"]["generation"] == 1
        assert made["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
        with pytest.raises(AlreadyExistsError, match="ConfigMap research/a exists"):
            await api.create("hub", config_map())

    run(scenario())


def test_answers_are_copies():
    async def scenario():
        api = MemoryApi()
        made = await api.create("hub", config_map(x="1"))
        made["data"]["x"] = "changed"
        listed = (await api.list("ConfigMap")).items[0]
        assert listed["data"] == {"x": "1"}

    run(scenario())


def test_watch_waits_for_changes_of_its_kind():
    async def scenario():
        api = MemoryApi()
        task = asyncio.create_task(next_events(api, 1, "0", kind="Secret"))
        await asyncio.sleep(0)
        await api.create("hub", config_map())
        await api.create("hub", {**config_map("s"), "kind": "Secret"})
        events = await asyncio.wait_for(task, 1)
        assert events[0].object["metadata"]["name"] == "s"

    run(scenario())


def test_watch_from_beyond_the_history_is_gone():
    async def scenario():
        api = MemoryApi(history=4)
        for i in range(6):
            await api.apply("hub", config_map(x=str(i)))
        with pytest.raises(GoneError, match="list again"):
            await next_events(api, 1, "1")
        assert len(await next_events(api, 4, "2")) == 4

    run(scenario())


def test_saved_cluster_loads_with_owners_and_versions(tmp_path):
    async def scenario():
        api = MemoryApi()
        await api.apply("hub", config_map(x="1"))
        api.save(tmp_path / "cluster.json")
        again = MemoryApi.load(tmp_path / "cluster.json")
        assert (await again.list("ConfigMap")) == (await api.list("ConfigMap"))
        with pytest.raises(ConflictError, match="belongs to hub"):
            await again.apply("member", config_map(x="2"))
        with pytest.raises(GoneError):
            await next_events(again, 1, "0")

    run(scenario())


def test_saved_cluster_is_private_and_complete_json(tmp_path):
    api = MemoryApi()
    run(api.create("hub", config_map(x="1")))
    path = tmp_path / "cluster.json"
    api.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(json.loads(path.read_text())["objects"]) == 1
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 9}', '{"format": 1, "objects": 3}'])
def test_other_files_are_refused_as_clusters(tmp_path, text):
    path = tmp_path / "cluster.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"cluster\.json"):
        MemoryApi.load(path)


def test_status_of_a_missing_object_is_not_found():
    with pytest.raises(NotFoundError, match="ConfigMap research/a does not exist"):
        run(MemoryApi().patch_status("ConfigMap", "research", "a", {}))


def test_old_events_are_dropped(monkeypatch):
    monkeypatch.setattr(memory, "MAX_EVENTS", 3)

    async def scenario():
        api = MemoryApi()
        for i in range(5):
            await api.create("hub", {**config_map(f"e{i}"), "kind": "Event"})
        names = [item["metadata"]["name"] for item in (await api.list("Event")).items]
        assert names == ["e2", "e3", "e4"]

    run(scenario())
