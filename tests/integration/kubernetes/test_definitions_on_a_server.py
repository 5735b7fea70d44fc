"""The generated CustomResourceDefinitions, loaded into a real API server."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders.api_worlds import World
from builders.stored_objects import stored_objects
from spes_api.definitions import DEFINITIONS
from spes_api.job import SpesJob, SpesJobStatus
from spes_api.kinds import MemberCluster, MemberReport, TrainerAssignment
from spes_api.loading import load_job
from spes_operator.errors import InvalidError

ROOT = Path(__file__).parents[3]
JOBS = sorted(path for path in (ROOT / "examples").glob("*.yaml") if path.stem != "members")
# Above it `kubectl apply` cannot keep its annotation of the last applied object (262,144 bytes).
MAX_DEFINITION_BYTES = 200_000

CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "Progressing",
    "message": "round 7 of about 90",
    "observedGeneration": 1,
    "lastTransitionTime": "2026-01-02T03:04:05Z",
}
JOB_STATUS = {
    "observedGeneration": 1,
    "ownershipEpoch": 3,
    "incarnation": 1,
    "round": 7,
    "tokens": 71680,
    "loss": 2.17,
    "members": {"ready": 2, "desired": 3},
    "experts": {"total": 8, "owned": 7, "parked": 1},
    "ownership": [{"peer": "uni-a.0", "experts": "0-3"}, {"peer": "uni-b.0", "experts": "4-6"}],
    "syncEndpoint": "sync.example.org:31000",
    "images": {"trainer": "trainer@sha256:00", "sync": "sync@sha256:00"},
    "activeSeconds": 3600,
    "activeSince": "2026-01-01T00:00:00Z",
    "expiresAt": "2026-01-02T00:00:00Z",
    "conditions": [CONDITION],
}
MEMBER: dict[str, Any] = {
    "apiVersion": "spes.dev/v1alpha1",
    "kind": "MemberCluster",
    "metadata": {"name": "uni-a", "labels": {"region": "north"}},
    "spec": {
        "accepted": True,
        "unschedulable": False,
        "expectedClusterID": "0b5c",
        "heartbeat": {"intervalSeconds": 1},
    },
}
MEMBER_STATUS = {
    "observedGeneration": 1,
    "clusterID": "0b5c",
    "slots": 2,
    "gpus": 16,
    "jobs": 1,
    "version": "0.1.0",
    "closedInvitation": "5f0c",
    "lastHeartbeatObserved": "2026-01-02T03:04:05Z",
    "conditions": [CONDITION, CONDITION | {"type": "Accepted", "reason": "AsExpected"}],
}
REPORT_STATUS = {
    "clusterID": "0b5c",
    "version": "0.1.0",
    "slots": [{"name": "0", "memoryBytes": 2**36, "resources": {"nvidia.com/gpu": "8"}}],
    "datasets": [{"name": "web", "manifestSha256": "ab" * 32}],
}
ASSIGNMENT_SPEC = {
    "jobUID": "6c1f",
    "slot": "0",
    "desired": "Run",
    "template": {
        "image": "example.org/spes-trainer@sha256:00",
        "numProcPerNode": 8,
        "resources": {"nvidia.com/gpu": "8"},
        "gracePeriodSeconds": 120,
        "datasets": ["web"],
        "nodeSelector": {"nvidia.com/gpu.product": "A100"},
        "priorityClassName": "low",
        "queueName": "gpus",
    },
    "backoffLimit": 3,
    "templateHash": "5d41",
    "joinSecret": "moe-tiny-0-join",
    "sync": {"endpoint": "sync.example.org:31000", "serverName": "6c1f.sync", "caBundle": "PEM"},
    "experts": "0-3",
    "ownershipEpoch": 3,
}
ASSIGNMENT_STATUS = {
    "observedGeneration": 1,
    "podName": "moe-tiny-0-x",
    "restarts": 2,
    "exitCode": -9,
    "message": "killed",
    "conditions": [CONDITION | {"type": "PodReady"}],
}


@pytest.fixture
def world(hub_control_plane, namespace) -> World:
    return World(control_plane=hub_control_plane, namespace=namespace)


def tabulate(text):
    """The columns of what `kubectl get` printed: header -> value of the only row."""
    header, row = text.splitlines()
    starts = [header.index(name) for name in header.split()] + [None]
    return {
        name: row[start:end].strip()
        for name, start, end in zip(header.split(), starts, starts[1:], strict=False)
    }


async def store(api, obj, status):
    await api.create("test", obj)
    metadata = obj["metadata"]
    return await api.patch_status(
        obj["kind"], metadata.get("namespace", ""), metadata["name"], status
    )


def example_job(namespace):
    document = yaml.safe_load((ROOT / "examples/moe-tiny.yaml").read_text())
    document["metadata"]["namespace"] = namespace
    return document


def assignment(namespace):
    return {
        "apiVersion": "spes.dev/v1alpha1",
        "kind": "TrainerAssignment",
        "metadata": {
            "name": "moe-tiny-0",
            "namespace": namespace,
            "labels": {"spes.dev/job": "moe-tiny"},
        },
        "spec": ASSIGNMENT_SPEC,
    }


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda one: one.short_name)
def test_a_definition_is_accepted_whole(hub_control_plane, definition):
    stored = json.loads(hub_control_plane.kubectl("get", "crd", definition.name, "-o", "json"))
    conditions = {one["type"]: one["status"] for one in stored["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}  # no NonStructuralSchema
    wanted = definition.manifest()["spec"]["versions"][0]["schema"]
    assert stored["spec"]["versions"][0]["schema"] == wanted
    size = (ROOT / "crds" / f"{definition.name}.yaml").stat().st_size
    assert size < MAX_DEFINITION_BYTES


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_an_example_comes_back_as_it_was_written(world, path):
    """The server's defaults are those of pydantic, and no field is dropped."""
    document = yaml.safe_load(path.read_text())
    document["metadata"]["namespace"] = world.namespace

    async def scenario(api):
        stored = await api.create("test", document)
        assert SpesJob.model_validate(stored).spec == load_job(path).spec
        assert extended(document["spec"], stored["spec"]) == stored["spec"]

    world.play(scenario)


def extended(given, stored):
    """`stored`, with everything that was given in its place."""
    if isinstance(given, dict):
        return stored | {key: extended(value, stored[key]) for key, value in given.items()}
    if isinstance(given, list):
        return [extended(one, other) for one, other in zip(given, stored, strict=True)]
    return given


def test_a_full_job_status_comes_back_as_it_was_written(world):
    async def scenario(api):
        stored = await store(api, example_job(world.namespace), JOB_STATUS)
        assert stored["status"] == JOB_STATUS
        parsed = SpesJob.model_validate(stored).status
        assert parsed == SpesJobStatus.model_validate(JOB_STATUS)
        assert parsed.model_fields_set == set(SpesJobStatus.model_fields)

    world.play(scenario)


def test_the_other_kinds_come_back_as_they_were_written(world):
    report = {
        "apiVersion": "spes.dev/v1alpha1",
        "kind": "MemberReport",
        "metadata": {"name": "report", "namespace": world.namespace},
    }
    member = MEMBER | {"metadata": {"name": world.namespace}}

    async def scenario(api):
        stored = await store(api, member, MEMBER_STATUS)
        assert (stored["spec"], stored["status"]) == (MEMBER["spec"], MEMBER_STATUS)
        MemberCluster.model_validate(stored)
        stored = await store(api, report, REPORT_STATUS)
        assert stored["status"] == REPORT_STATUS
        MemberReport.model_validate(stored)
        stored = await store(api, assignment(world.namespace), ASSIGNMENT_STATUS)
        assert (stored["spec"], stored["status"]) == (ASSIGNMENT_SPEC, ASSIGNMENT_STATUS)
        TrainerAssignment.model_validate(stored)

    world.play(scenario)


def test_a_misspelt_field_is_refused(world):
    job = example_job(world.namespace)
    job["spec"]["sync"]["everyStep"] = 10

    async def scenario(api):
        with pytest.raises(InvalidError, match=r'unknown field "spec\.sync\.everyStep"'):
            await api.create("test", job)
        del job["spec"]["sync"]["everyStep"]
        await api.create("test", job)
        with pytest.raises(InvalidError, match=r'unknown field "status\.rounds"'):
            await api.patch_status("SpesJob", world.namespace, "moe-tiny", {"rounds": 7})

    world.play(scenario)


def test_a_condition_is_said_once(world):
    async def scenario(api):
        await api.create("test", example_job(world.namespace))
        with pytest.raises(InvalidError, match="Duplicate value"):
            await api.patch_status(
                "SpesJob", world.namespace, "moe-tiny", {"conditions": [CONDITION, CONDITION]}
            )

    world.play(scenario)


def test_kubectl_shows_a_job(world, hub_control_plane):
    world.play(lambda api: store(api, example_job(world.namespace), JOB_STATUS))
    row = tabulate(hub_control_plane.kubectl("get", "sj", "-n", world.namespace, "-o", "wide"))
    age = row.pop("AGE")
    assert age.endswith("s")
    assert row == {
        "NAME": "moe-tiny",
        "READY": "True",
        "REASON": "Progressing",
        "MEMBERS": "2",
        "EXPERTS": "7",
        "ROUND": "7",
        "EPOCH": "3",
        "LOSS": "2.17",
        "SYNC": "sync.example.org:31000",
        "MODE": "Automatic",
    }
    narrow = tabulate(hub_control_plane.kubectl("get", "sj", "-n", world.namespace))
    assert narrow.keys() == row.keys() - {"SYNC", "MODE"} | {"AGE"}


def test_kubectl_shows_a_member_and_its_assignments(world, hub_control_plane):
    member = MEMBER | {"metadata": {"name": world.namespace}}

    async def scenario(api):
        await store(api, member, MEMBER_STATUS)
        await store(api, assignment(world.namespace), ASSIGNMENT_STATUS)

    world.play(scenario)
    row = tabulate(hub_control_plane.kubectl("get", "mc", world.namespace))
    assert row.pop("AGE")
    assert row.pop("LAST-SEEN")
    assert row == {
        "NAME": world.namespace,
        "ACCEPTED": "True",
        "READY": "True",
        "GPUS": "16",
        "JOBS": "1",
        "VERSION": "0.1.0",
    }
    row = tabulate(hub_control_plane.kubectl("get", "ta", "-n", world.namespace))
    row.pop("AGE")
    assert row == {
        "NAME": "moe-tiny-0",
        "JOB": "moe-tiny",
        "EXPERTS": "0-3",
        "DESIRED": "Run",
        "READY": "True",
    }
    everything = hub_control_plane.kubectl("get", "spes", "-n", world.namespace, "-o", "name")
    assert "trainerassignment.spes.dev/moe-tiny-0" in everything.splitlines()


@pytest.mark.parametrize(
    "obj", stored_objects("SpesJob", "MemberCluster", "MemberReport", "TrainerAssignment")
)
def test_an_object_of_a_former_release_is_taken_whole(world, obj):
    given = obj | {"metadata": {"name": obj["metadata"]["name"]}}
    if obj["kind"] == "MemberCluster":
        given["metadata"]["name"] = world.namespace
    else:
        given["metadata"]["namespace"] = world.namespace

    async def scenario(api):
        held = await store(api, given, obj.get("status", {}))
        for part in obj.keys() & {"spec", "status"}:
            assert extended(obj[part], held[part]) == held[part]

    world.play(scenario)
