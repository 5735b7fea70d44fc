"""The test control plane itself: real controllers, real rights, and nothing of it left behind."""

import asyncio
import contextlib
import json

import pytest
from builders.api_worlds import SCENARIO_SECONDS, World
from builders.control_plane import ControlPlane, ControlPlaneError
from builders.processes import runs
from spes_operator.errors import ForbiddenError, UnavailableError
from spes_operator.k8s.cluster import ClusterApi
from spes_operator.k8s.follow import follow

# Each is the shell script that plays a binary in the tests of failed starts.
SLEEPS = 'echo $$ > "$(basename "$0").pid"; exec sleep 60'
# Fails once its neighbour can be found, however slowly that one starts.
FAILS = "until [ -s etcd.pid ]; do sleep 0.05; done; echo the disk is gone; exit 3"


@pytest.fixture
def world(hub_control_plane, namespace) -> World:
    return World(control_plane=hub_control_plane, namespace=namespace)


async def until(holds):
    async with asyncio.timeout(SCENARIO_SECONDS):
        while not await holds():
            await asyncio.sleep(0.05)


def test_a_job_gets_its_pod(world):
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "trainer", "namespace": world.namespace},
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "trainer", "image": "trainer"}],
                }
            }
        },
    }

    async def scenario(api):
        made = await api.create("member", job)

        async def has_pod():
            pods = (await api.list("Pod", world.namespace)).items
            return [
                owner["uid"] for pod in pods for owner in pod["metadata"]["ownerReferences"]
            ] == [made["metadata"]["uid"]]

        await until(has_pod)
        await api.delete("Job", world.namespace, "trainer")

        async def has_none():
            return not (await api.list("Pod", world.namespace)).items

        await until(has_none)

    world.play(scenario)


def test_an_account_has_the_rights_of_its_roles_alone(world, hub_control_plane, tmp_path):
    """With a token of the server's own, read again once another one lies in the file."""
    in_namespace = ("-n", world.namespace)
    hub_control_plane.kubectl("create", "serviceaccount", "agent", *in_namespace)
    subject = f"--serviceaccount={world.namespace}:agent"
    hub_control_plane.kubectl(
        "create", "rolebinding", "agent", "--clusterrole=edit", subject, *in_namespace
    )
    token = tmp_path / "token"
    token.write_text("not.a.token")
    kubeconfig = hub_control_plane.kubeconfig_with_token("agent", token)

    async def scenario(_):
        async with ClusterApi.open(kubeconfig) as agent:
            with pytest.raises(ForbiddenError, match="401"):
                await agent.list("ConfigMap", world.namespace)
            token.write_text(hub_control_plane.kubectl("create", "token", "agent", *in_namespace))
            await agent.create("agent", world.config_map())
            with pytest.raises(ForbiddenError, match="403"):
                await agent.list("ConfigMap", "kube-system")

    world.play(scenario)


def test_a_stranger_has_no_rights(world, hub_control_plane):
    kubeconfig = hub_control_plane.kubeconfig_of("stranger", ["visitors"])

    async def scenario(_):
        async with ClusterApi.open(kubeconfig) as stranger:
            with pytest.raises(ForbiddenError, match='User "stranger" cannot list'):
                await stranger.list("SpesJob", world.namespace)

    world.play(scenario)


def test_following_goes_on_when_the_api_server_was_killed(world, hub_control_plane):
    seen = set()

    async def scenario(api):
        following = asyncio.create_task(
            follow(
                api,
                "ConfigMap",
                world.namespace,
                lambda event: seen.add(event.object["metadata"]["name"]),
            )
        )
        await api.create("hub", world.config_map("before"))

        async def sees(name):
            return name in seen

        await until(lambda: sees("before"))
        hub_control_plane.kill_api_server()
        with pytest.raises(UnavailableError):
            await api.list("ConfigMap", world.namespace)
        hub_control_plane.start_api_server()
        await api.create("hub", world.config_map("after"))
        await until(lambda: sees("after"))
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following

    world.play(scenario)


@pytest.fixture
def binaries(tmp_path):
    """A folder of scripts that play the binaries."""
    folder = tmp_path / "binaries"
    folder.mkdir()
    for name, script in (("etcd", SLEEPS), ("kube-apiserver", FAILS)):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return folder


def test_a_start_that_fails_shows_why_and_leaves_nothing(binaries, tmp_path):
    with pytest.raises(ControlPlaneError, match=r"(?s)exit status 3.*the disk is gone"):
        ControlPlane(binaries, tmp_path).wait()
    assert not runs(int((tmp_path / "etcd.pid").read_text()))


def test_only_the_user_can_read_its_credentials(hub_control_plane):
    pki = hub_control_plane.kubeconfig.parent
    readable = {path.name for path in pki.iterdir() if path.stat().st_mode & 0o077}
    assert all(name.endswith(".crt") for name in readable)
    assert json.loads(hub_control_plane.kubeconfig.read_text())["users"][0]["name"] == "admin"
