"""`spes-operator hub` as a process over a real API server, with the rights of the chart."""

import pytest
from builders.hub_program import HubProgram, PlayedServer
from builders.hub_world import job_document
from builders.live_objects import LiveObjects, condition, until
from builders.relay import relay_to
from builders.rights import HUB_NAMESPACE, install_hub_rights, make_namespaces

pytestmark = pytest.mark.timeout(240)
KINDS = ("Service", "Secret", "PersistentVolumeClaim", "StatefulSet", "ConfigMap")


@pytest.fixture
def live(hub_control_plane):
    with LiveObjects(hub_control_plane.kubeconfig) as objects:
        yield objects


@pytest.fixture(scope="session")
def plane(hub_control_plane):
    install_hub_rights(hub_control_plane)
    return hub_control_plane


@pytest.fixture
def hub(plane, namespace, tmp_path):
    hub = HubProgram(plane, tmp_path, namespace)
    hub.program.start()
    yield hub
    code = hub.program.stop()
    assert "Traceback" not in hub.program.log(), hub.program.log()
    assert code in (0, None), hub.program.log()


@pytest.fixture
def server(live, hub_control_plane, tmp_path):
    played = PlayedServer(live, hub_control_plane, tmp_path)
    yield played
    played.stop()


def make_job(namespace, name="moe-tiny", **spec):
    document = job_document(**spec)
    document["metadata"] = {"namespace": namespace, "name": name}
    return document


def started(live, server, namespace):
    """A job whose sync server runs; answers the SpesJob."""
    live.apply(make_job(namespace))
    live.wait("Pod", namespace, "moe-tiny-sync-0", lambda _: True)
    server.start(namespace, "moe-tiny")
    return live.wait(
        "SpesJob",
        namespace,
        "moe-tiny",
        lambda job: condition(job, "Ready").get("reason") == "NotEnoughMembers",
    )


def versions(live, namespace):
    """Of everything that the hub writes there."""
    objects = [obj for kind in (*KINDS, "SpesJob", "Event") for obj in live.list(kind, namespace)]
    return {
        (obj["kind"], obj["metadata"]["name"]): obj["metadata"]["resourceVersion"]
        for obj in objects
        if obj["kind"] != "Event" or obj["reportingComponent"] == "spes.dev/spes-operator"
    }


@pytest.mark.usefixtures("hub")
def test_a_job_gets_its_sync_server(live, server, namespace):
    job = started(live, server, namespace)
    uid = job["metadata"]["uid"]
    for kind, name in (
        ("Service", "sync-moe-tiny"),
        ("Secret", "moe-tiny-sync-tls"),
        ("StatefulSet", "moe-tiny-sync"),
    ):
        (owner,) = live.get(kind, namespace, name)["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("SpesJob", uid)
    claim = live.get("PersistentVolumeClaim", namespace, f"moe-tiny-{uid[:8]}")
    assert "ownerReferences" not in claim["metadata"]
    (port,) = live.get("Service", namespace, "sync-moe-tiny")["spec"]["ports"]
    assert job["status"]["syncEndpoint"] == f"127.0.0.1:{port['nodePort']}"
    assert job["status"]["images"]["sync"] == "registry.example/sync:1"


def test_a_steady_hub_writes_nothing(hub, live, server, namespace):
    started(live, server, namespace)
    passed = hub.passes("job")
    until(lambda: hub.passes("job") > passed + 3, hub.program.log)
    before = versions(live, namespace)
    passed = hub.passes("job")
    until(lambda: hub.passes("job") > passed + 8, hub.program.log)
    assert versions(live, namespace) == before
    assert hub.is_alive()


def test_a_killed_hub_continues(hub, live, server, namespace):
    started(live, server, namespace)
    names = ("Service", "Secret", "PersistentVolumeClaim", "StatefulSet")
    before = {key: value for key, value in versions(live, namespace).items() if key[0] in names}
    authorities = live.get("Secret", HUB_NAMESPACE, "spes-hub-ca")["data"]
    hub.program.kill()
    hub.configure(hub.settings | {"images": {"trainer": "registry.example/trainer:2"}})
    hub.program.start()
    until(lambda: hub.passes("job") > 3, hub.program.log)
    assert live.get("Secret", HUB_NAMESPACE, "spes-hub-ca")["data"] == authorities
    now = {key: value for key, value in versions(live, namespace).items() if key[0] in names}
    assert now == before
    job = live.get("SpesJob", namespace, "moe-tiny")
    assert job["status"]["images"]["trainer"] == "registry.example/trainer:1"


@pytest.mark.usefixtures("hub")
def test_a_deleted_job_leaves_its_volume_alone(live, server, namespace):
    job = started(live, server, namespace)
    live.delete("SpesJob", namespace, "moe-tiny")
    for kind, name in (
        ("StatefulSet", "moe-tiny-sync"),
        ("Service", "sync-moe-tiny"),
        ("Secret", "moe-tiny-sync-tls"),
    ):
        live.wait_gone(kind, namespace, name)
    uid = job["metadata"]["uid"]
    assert live.find("PersistentVolumeClaim", namespace, f"moe-tiny-{uid[:8]}") is not None


@pytest.mark.usefixtures("hub")
def test_a_job_created_anew_gets_a_volume_of_its_own(live, namespace):
    def claims():
        return {one["metadata"]["name"] for one in live.list("PersistentVolumeClaim", namespace)}

    live.apply(make_job(namespace))
    live.wait("StatefulSet", namespace, "moe-tiny-sync", lambda _: True)
    first = claims()
    live.delete("SpesJob", namespace, "moe-tiny")
    uid = live.apply(make_job(namespace))["metadata"]["uid"]
    live.wait(
        "StatefulSet",
        namespace,
        "moe-tiny-sync",
        lambda found: found["metadata"]["ownerReferences"][0]["uid"] == uid,
    )
    assert claims() == first | {f"moe-tiny-{uid[:8]}"}


@pytest.mark.usefixtures("hub")
def test_a_damaged_ownership_is_a_condition(live, server, namespace):
    job = started(live, server, namespace)
    broken = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "namespace": namespace,
            "name": "moe-tiny-ownership",
            "labels": {"spes.dev/job-uid": job["metadata"]["uid"]},
        },
        "data": {"ownership.json": "{"},
    }
    live.create(broken)
    found = live.wait(
        "SpesJob",
        namespace,
        "moe-tiny",
        lambda job: condition(job, "Degraded").get("reason") == "OwnershipDamaged",
    )
    assert "delete it" in condition(found, "Degraded")["message"]
    live.delete("ConfigMap", namespace, "moe-tiny-ownership")
    live.wait(
        "SpesJob",
        namespace,
        "moe-tiny",
        lambda job: condition(job, "Degraded").get("status") == "False",
    )


@pytest.mark.usefixtures("hub")
def test_a_job_outside_the_namespaces_is_told_so(live, hub_control_plane, namespace):
    other = f"{namespace}-other"
    make_namespaces(hub_control_plane, other)
    live.apply(make_job(other))
    found = live.wait(
        "SpesJob", other, "moe-tiny", lambda job: condition(job, "Validated").get("reason")
    )
    assert "jobNamespaces" in condition(found, "Validated")["message"]


@pytest.mark.usefixtures("hub")
def test_missing_rights_are_a_condition(live, hub_control_plane, namespace):
    hub_control_plane.kubectl("delete", "rolebinding", "--all", "-n", namespace)
    live.apply(make_job(namespace))
    found = live.wait(
        "SpesJob",
        namespace,
        "moe-tiny",
        lambda job: "forbidden" in condition(job, "Ready").get("message", ""),
    )
    assert condition(found, "Ready")["status"] == "False"


@pytest.mark.usefixtures("hub")
def test_a_server_that_does_not_start_says_why(live, server, namespace):
    live.apply(make_job(namespace))
    live.wait("Pod", namespace, "moe-tiny-sync-0", lambda _: True)
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    container = {
        "name": "sync",
        "image": "x",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"waiting": waiting},
    }
    server.say(namespace, "moe-tiny", ready=False, containerStatuses=[container])
    live.wait(
        "SpesJob",
        namespace,
        "moe-tiny",
        lambda job: "ImagePullBackOff no such image" in condition(job, "Ready").get("message", ""),
    )


def test_a_hub_waits_for_an_api_server_that_is_away(plane, namespace, tmp_path):
    """It lives, says why it waits, and works as soon as it can."""
    with relay_to(int(plane.url.rpartition(":")[2])) as relay:
        relay.go_down()
        hub = HubProgram(plane, tmp_path, namespace, url=f"https://127.0.0.1:{relay.port}")
        hub.program.start()
        until(hub.is_alive, hub.program.log)
        until(lambda: hub.program.log().count("hub waits error=") > 1, hub.program.log)
        assert hub.is_alive()
        assert not hub.is_ready()
        relay.go_up()
        until(hub.is_ready, hub.program.log)
        assert hub.is_alive()
        assert hub.program.stop() == 0, hub.program.log()


def test_unknown_settings_are_named(plane, namespace, tmp_path):
    hub = HubProgram(plane, tmp_path, namespace)
    hub.configure(hub.settings | {"exposures": {}})
    hub.program.start()
    until(lambda: not hub.program.is_running(), hub.program.log)
    assert hub.program.stop() == 2
    assert "exposures" in hub.program.log()
