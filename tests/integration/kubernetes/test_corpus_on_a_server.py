"""A real API server judges the corpus of jobs as pydantic does, and says the same sentence."""

import uuid

import pytest
from builders.api_worlds import World, version_of
from builders.corpus import Case, corpus
from spes_operator.errors import InvalidError


@pytest.fixture(scope="module")
def world(hub_control_plane) -> World:
    name = f"corpus-{uuid.uuid4().hex[:8]}"
    hub_control_plane.kubectl("create", "namespace", name)
    return World(control_plane=hub_control_plane, namespace=name)


@pytest.mark.parametrize("case", corpus(), ids=lambda case: case.name.replace(" ", "-"))
def test_the_server_judges(world, case: Case):
    """By schema, by CEL rule over several fields, or by transition rule."""
    job = in_namespace(case.job, world.namespace)

    async def submit(api):
        if case.old is None:
            return await api.create("user", job)
        old = await api.create("user", in_namespace(case.old, world.namespace))
        job["metadata"]["resourceVersion"] = version_of(old)
        return await api.replace("user", job)

    async def scenario(api):
        try:
            if case.valid:
                await submit(api)
            else:
                with pytest.raises(InvalidError) as caught:
                    await submit(api)
                assert (case.rule or case.field) in str(caught.value)
        finally:
            for obj in (job, case.old or job):
                await api.delete("SpesJob", world.namespace, obj["metadata"]["name"])

    world.play(scenario)


def in_namespace(job, namespace):
    return job | {"metadata": job["metadata"] | {"namespace": namespace}}
