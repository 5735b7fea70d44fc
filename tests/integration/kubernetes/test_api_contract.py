"""What KubeApi promises holds alike in memory, on a real API server, and through a cache of it."""

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Any

import pytest
from builders.api_worlds import World, changes, version_of
from spes_operator.errors import (
    AlreadyExistsError,
    ConflictError,
    GoneError,
    NotFoundError,
    UnavailableError,
)
from spes_operator.k8s.events import Event, post

MEMBER: dict[str, Any] = {
    "apiVersion": "spes.dev/v1alpha1",
    "kind": "MemberCluster",
    "spec": {"accepted": False},
}


@pytest.fixture(params=["memory", "cluster", "cached memory", "cached cluster"])
def world(request) -> World:
    is_cached = request.param.startswith("cached")
    if request.param.endswith("memory"):
        return World(is_cached=is_cached)
    return World(
        control_plane=request.getfixturevalue("hub_control_plane"),
        namespace=request.getfixturevalue("namespace"),
        is_cached=is_cached,
    )


def member(world, **spec):
    return {**MEMBER, "metadata": {"name": world.namespace}, "spec": MEMBER["spec"] | spec}


def test_what_is_created_is_read_back_with_an_identity(world):
    async def scenario(api):
        made = await api.create("hub", world.config_map(x="1"))
        assert made["data"] == {"x": "1"}
        assert {"uid", "resourceVersion", "creationTimestamp"} <= made["metadata"].keys()
        assert "managedFields" not in made["metadata"]
        assert await api.get("ConfigMap", world.namespace, "a") == made

    world.play(scenario)


def test_a_name_is_taken_once(world):
    async def scenario(api):
        await api.create("hub", world.config_map())
        with pytest.raises(AlreadyExistsError):
            await api.create("hub", world.config_map(x="1"))

    world.play(scenario)


def test_an_absent_object_is_not_found(world):
    async def scenario(api):
        with pytest.raises(NotFoundError):
            await api.get("ConfigMap", world.namespace, "a")
        with pytest.raises(NotFoundError):
            await api.patch_status("MemberCluster", "", "nobody", {})

    world.play(scenario)


def test_deleting_twice_is_no_error(world):
    async def scenario(api):
        await api.create("hub", world.config_map())
        await api.delete("ConfigMap", world.namespace, "a")
        await api.delete("ConfigMap", world.namespace, "a")
        with pytest.raises(NotFoundError):
            await api.get("ConfigMap", world.namespace, "a")

    world.play(scenario)


def test_replace_swaps_the_whole_body_if_nobody_wrote_since(world):
    async def scenario(api):
        made = await api.create("hub", world.config_map(x="1", y="1"))
        swapped = await api.replace("hub", world.config_map(version=version_of(made), x="2"))
        assert swapped["data"] == {"x": "2"}
        assert swapped["metadata"]["uid"] == made["metadata"]["uid"]
        with pytest.raises(ConflictError):
            await api.replace("hub", world.config_map(version=version_of(made), x="3"))
        assert (await api.get("ConfigMap", world.namespace, "a"))["data"] == {"x": "2"}

    world.play(scenario)


def test_replacing_a_deleted_object_is_a_conflict(world):
    async def scenario(api):
        made = await api.create("hub", world.config_map())
        await api.delete("ConfigMap", world.namespace, "a")
        with pytest.raises(ConflictError):
            await api.replace("hub", world.config_map(version=version_of(made)))

    world.play(scenario)


def test_of_many_swaps_from_one_version_one_wins(world):
    async def scenario(api):
        version = version_of(await api.create("hub", world.config_map()))
        swaps = (api.replace("hub", world.config_map(version=version, x=str(i))) for i in range(8))
        results = await asyncio.gather(*swaps, return_exceptions=True)
        assert sum(isinstance(result, ConflictError) for result in results) == 7
        assert sum(isinstance(result, dict) for result in results) == 1

    world.play(scenario)


def test_writes_that_change_nothing_say_nothing(world):
    async def scenario(api):
        first = await api.apply("hub", world.config_map(x="1"))
        assert await api.apply("hub", world.config_map(x="1")) == first
        joined = await api.apply("admin", member(world))
        status = await api.patch_status("MemberCluster", "", world.namespace, {"slots": 2})
        again = await api.patch_status("MemberCluster", "", world.namespace, {"slots": 2})
        assert again == status != joined

    world.play(scenario)


def test_owners_keep_their_fields_apart(world):
    async def scenario(api):
        await api.apply("hub", world.config_map(x="1"))
        both = await api.apply("member", world.config_map(y="2"))
        assert both["data"] == {"x": "1", "y": "2"}
        less = await api.apply("hub", world.config_map(z="3"))
        assert less["data"] == {"y": "2", "z": "3"}

    world.play(scenario)


def test_a_field_of_another_owner_cannot_be_changed(world):
    async def scenario(api):
        await api.apply("hub", world.config_map(x="1"))
        with pytest.raises(ConflictError, match="x"):
            await api.apply("member", world.config_map(x="2"))
        await api.apply("member", world.config_map(x="1"))

    world.play(scenario)


def test_what_was_created_is_not_changed_by_apply(world):
    """Both write fields, but are two owners, also under one name: use one of them for an object."""

    async def scenario(api):
        await api.create("hub", world.config_map(x="1"))
        with pytest.raises(ConflictError):
            await api.apply("hub", world.config_map(x="2"))

    world.play(scenario)


def test_status_and_spec_are_written_apart(world):
    async def scenario(api):
        made = await api.create("admin", member(world) | {"status": {"slots": 9}})
        assert "status" not in made
        status = {"slots": 2, "clusterID": "c"}
        await api.patch_status("MemberCluster", "", world.namespace, status)
        await api.replace(
            "admin",
            member(world, unschedulable=True)
            | {
                "metadata": {
                    "name": world.namespace,
                    "resourceVersion": version_of(
                        await api.get("MemberCluster", "", world.namespace)
                    ),
                }
            },
        )
        changed = await api.get("MemberCluster", "", world.namespace)
        assert changed["spec"]["unschedulable"] is True
        assert changed["status"] == status

    world.play(scenario)


def test_a_status_is_replaced_as_a_whole(world):
    async def scenario(api):
        await api.create("admin", member(world))
        await api.patch_status("MemberCluster", "", world.namespace, {"slots": 2, "clusterID": "c"})
        after = await api.patch_status("MemberCluster", "", world.namespace, {"slots": 3})
        assert after["status"] == {"slots": 3}

    world.play(scenario)


def test_a_status_is_not_written_to_another_object_of_the_name(world):
    async def scenario(api):
        name = world.namespace
        before = (await api.create("admin", member(world)))["metadata"]["uid"]
        written = await api.patch_status("MemberCluster", "", name, {"slots": 2}, uid=before)
        assert written["status"] == {"slots": 2}
        await api.delete("MemberCluster", "", name)
        made = await api.create("admin", member(world))
        with pytest.raises(ConflictError):
            await api.patch_status("MemberCluster", "", name, {"slots": 3}, uid=before)
        assert "status" not in await api.get("MemberCluster", "", name)
        uid = made["metadata"]["uid"]
        assert (await api.patch_status("MemberCluster", "", name, {"slots": 4}, uid=uid))["status"]

    world.play(scenario)


def test_generation_counts_changes_of_the_spec_alone(world):
    async def scenario(api):
        made = await api.apply("admin", member(world))
        assert made["metadata"]["generation"] == 1
        await api.patch_status("MemberCluster", "", world.namespace, {"slots": 2})
        changed = await api.apply("admin", member(world, accepted=True))
        assert changed["metadata"]["generation"] == 2

    world.play(scenario)


def test_list_selects_by_labels_in_order_of_names(world):
    async def scenario(api):
        for name, labels in (("b", {"j": "1"}), ("a", {"j": "1", "x": "y"}), ("c", {})):
            obj = world.config_map(name)
            obj["metadata"]["labels"] = labels
            await api.create("hub", obj)
        found = (await api.list("ConfigMap", world.namespace, {"j": "1"})).items
        assert [obj["metadata"]["name"] for obj in found] == ["a", "b"]
        assert {(obj["apiVersion"], obj["kind"]) for obj in found} == {("v1", "ConfigMap")}
        assert (await api.list("ConfigMap", "elsewhere")).items == []

    world.play(scenario)


def test_all_namespaces_are_listed_together(world):
    async def scenario(api):
        await api.create("member", world.lease())
        found = (await api.list("Lease")).items
        assert world.namespace in {obj["metadata"]["namespace"] for obj in found}

    world.play(scenario)


def test_watch_continues_from_a_listing(world):
    async def scenario(api):
        made = await api.create("hub", world.config_map(x="1"))
        version = (await api.list("ConfigMap", world.namespace)).resource_version
        await api.replace("hub", world.config_map(version=version_of(made), x="2"))
        await api.create("hub", world.config_map("b"))
        await api.delete("ConfigMap", world.namespace, "a")
        events = await changes(api, "ConfigMap", world.namespace, from_version=version, count=3)
        assert [event.type for event in events] == ["MODIFIED", "ADDED", "DELETED"]
        assert events[0].object["data"] == {"x": "2"}

    world.play(scenario)


def test_watch_resumes_after_any_change_it_has_seen(world):
    async def scenario(api):
        version = (await api.list("ConfigMap", world.namespace)).resource_version
        for name in "abc":
            await api.create("hub", world.config_map(name))
        first = await changes(api, "ConfigMap", world.namespace, from_version=version, count=2)
        rest = await changes(
            api,
            "ConfigMap",
            world.namespace,
            from_version=version_of(first[0].object),
            count=2,
        )
        assert [event.object["metadata"]["name"] for event in rest] == ["b", "c"]

    world.play(scenario)


def test_a_watch_waits_for_what_comes(world):
    async def scenario(api):
        version = (await api.list("Lease", world.namespace)).resource_version
        watching = asyncio.create_task(
            changes(api, "Lease", world.namespace, from_version=version, count=1)
        )
        await asyncio.sleep(0)
        await api.create("hub", world.config_map())
        await api.create("member", world.lease())
        (event,) = await watching
        assert event.object["spec"]["holderIdentity"] == "uni-a"

    world.play(scenario)


def test_an_event_can_be_posted(world):
    async def scenario(api):
        event = Event(
            reason="MemberJoined",
            message="uni-a joined",
            kind="SpesJob",
            namespace=world.namespace,
            name="moe-tiny",
            time=datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
        )
        await post(api, "spes-hub", event)
        (posted,) = (await api.list("Event", world.namespace)).items
        assert posted["reason"] == "MemberJoined"
        assert posted["involvedObject"]["name"] == "moe-tiny"

    world.play(scenario)


def test_a_watch_from_forgotten_history_is_gone(hub_control_plane, namespace):
    """In memory: see the unit tests of its bounded history."""
    world = World(control_plane=hub_control_plane, namespace=namespace)

    async def watch_from_the_start(api):
        while True:  # the first watch of a new kind may be asked to come again
            with contextlib.suppress(UnavailableError):
                await changes(api, "SpesJob", namespace, from_version="1", count=1)
            await asyncio.sleep(0.05)

    async def scenario(api):
        with pytest.raises(GoneError):
            await watch_from_the_start(api)

    world.play(scenario)
