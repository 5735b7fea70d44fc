"""Models: objects of a kind are parsed once for each version of them."""

import asyncio

from builders.clock import FakeClock
from spes_api.kinds import MemberCluster
from spes_operator.k8s.memory import MemoryApi
from spes_operator.k8s.typed import Models


def member(name, **spec):
    return {
        "apiVersion": "spes.dev/v1alpha1",
        "kind": "MemberCluster",
        "metadata": {"name": name},
        "spec": spec,
    }


def test_an_object_is_parsed_anew_only_when_it_has_changed():
    async def scenario():
        api, models = MemoryApi(FakeClock()), Models(MemberCluster)
        for name in ("uni-a", "uni-b"):
            await api.apply("user", member(name))
        first = await models.read(api)
        await api.apply("user", member("uni-b", accepted=True))
        second = await models.read(api)
        assert second[0] is first[0]
        assert [one.spec.accepted for one in (first[1], second[1])] == [False, True]
        await api.delete("MemberCluster", "", "uni-a")
        assert await models.read(api) == second[1:]

    asyncio.run(scenario())


def test_an_object_that_is_not_of_its_schema_is_told_once_a_version(caplog):
    async def scenario():
        api, models = MemoryApi(FakeClock()), Models(MemberCluster)
        await api.apply("user", member("uni-a", accepted="perhaps"))
        assert await models.read(api) == await models.read(api) == []

    asyncio.run(scenario())
    assert len(caplog.records) == 1
