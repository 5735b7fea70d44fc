"""Many members and jobs on one API server: what is asked and written is counted there.

Pods have no node and stay pending; sync servers are played. Nothing here depends on how fast it is.
"""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from builders import played_hub
from builders.hub_world import job_document
from builders.many_agents import ManyAgents, make, objects_of
from builders.rights import HUB, allow_jobs, install_hub_rights
from prometheus_client.parser import text_string_to_metric_families
from spes_operator.k8s.cluster import ClusterApi
from spes_operator.local import launch

pytestmark = pytest.mark.timeout(2400)

NUM_MEMBERS, NUM_JOBS = 50, 20
_CRDS = Path(__file__).parents[3] / "crds"
MEMBERS = [f"uni-{index:02}" for index in range(NUM_MEMBERS)]
WRITES = {"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}
# For as long everything is counted: while jobs run, and while they are suspended.
RUN_SECONDS, REST_SECONDS = 30, 60
# A status may be written once in so many seconds.
STATUS_SECONDS = 10
# Of the hub's process, beside so many members.
MAX_RESIDENT_BYTES = 150_000_000
DEADLINE_SECONDS = 600.0
POLL_SECONDS = 1.0


def job_name(index):
    return f"job-{index:02}"


def job(namespace, index, *, suspend=False):
    """One that takes the members of its group: a slot is for one job."""
    document = job_document(members={"min": 2, "max": 5}, suspend=suspend)
    del document["spec"]["reassignment"]  # its limits are for tests that wait for losses
    document["metadata"] = {"namespace": namespace, "name": job_name(index)}
    document["spec"]["members"]["selector"] = {"group": str(index % NUM_JOBS)}
    return document


class Scene:
    """The API server as admin, and the hub as a process."""

    def __init__(self, plane, namespace, api, hub):
        self.plane, self.namespace, self.api, self._hub = plane, namespace, api, hub

    async def figures(self):
        """Of the hub's process."""
        self._hub.stdin.write(b"\n")
        await self._hub.stdin.drain()
        return played_hub.Figures(**json.loads(await self._hub.stdout.readline()))

    def requests(self):
        """(verb, resource) -> how many the API server has answered."""
        text = self.plane.kubectl("get", "--raw", "/metrics")
        counted = Counter()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "apiserver_request_total":
                    of = sample.labels
                    resource = "/".join(filter(None, (of["resource"], of["subresource"])))
                    counted[of["verb"], resource] += int(sample.value)
        return counted

    async def written_in(self, seconds):
        """What is written in so many seconds, and how much the hub asks."""
        before, used = self.requests(), await self.figures()
        await asyncio.sleep(seconds)
        after, figures = self.requests(), await self.figures()
        written = Counter({key: n for key, n in (after - before).items() if key[0] in WRITES})
        asked = sum(figures.answers.values()) - sum(used.answers.values())
        cpu = figures.cpu_seconds - used.cpu_seconds
        show(f"{seconds} s: {asked} requests of the hub, {cpu:.1f} s of CPU; writes {written}")
        show(f"  reads {after - before - written}")
        return written, asked

    @contextlib.asynccontextmanager
    async def changes_of_jobs(self):
        """Name of a job -> how often it changes within the block."""
        changes, since = Counter(), await self.api.list("SpesJob", self.namespace)

        async def follow():
            version = since.resource_version
            async for event in self.api.watch("SpesJob", self.namespace, from_version=version):
                changes[event.object["metadata"]["name"]] += 1

        following = asyncio.create_task(follow())
        yield changes
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following

    async def settle(self, *steady):
        """Wait until nothing is written any more but these and members' beats."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not await self._is_steady(steady):
                pass

    async def _is_steady(self, steady):
        written, _ = await self.written_in(STATUS_SECONDS)
        return {resource for _, resource in written} <= {"leases", *steady}

    async def until(self, kind, holds, label):
        """Wait until it holds for all objects of a kind that have a label."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not holds((await self.api.list(kind, "", {label: None})).items):
                await asyncio.sleep(POLL_SECONDS)

    async def until_jobs_say(self, kind, status):
        """Wait until every job has a condition."""

        def say(jobs):
            return all(
                any(one["type"] == kind and one["status"] == status for one in conditions(job))
                for job in jobs
            )

        async with asyncio.timeout(DEADLINE_SECONDS):
            while not say((await self.api.list("SpesJob", self.namespace)).items):
                await asyncio.sleep(POLL_SECONDS)


def show(text):
    """A figure, for whoever runs it with -s."""
    sys.stdout.write(f"{text}\n")


def conditions(obj):
    return obj.get("status", {}).get("conditions", ())


@contextlib.asynccontextmanager
async def hub_process(plane, namespace, log):
    """The hub, with the rights of the chart."""
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", launch.__file__, str(os.getpid())),
            *(sys.executable, played_hub.__file__, str(HUB.kubeconfig(plane)), namespace),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    try:
        yield process
        process.stdin.close()
        async with asyncio.timeout(60):
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture(scope="module")
def hub_control_plane(control_plane_of):
    """One of its own: requests and objects of other tests are not to be counted."""
    plane = control_plane_of("crowd")
    plane.kubectl("apply", "--server-side", "-f", str(_CRDS))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=20s")
    return plane


@pytest.fixture
def play(hub_control_plane, namespace, tmp_path):
    install_hub_rights(hub_control_plane)
    allow_jobs(hub_control_plane, namespace)

    def run(scenario):
        async def whole():
            kubeconfig, log = hub_control_plane.kubeconfig, tmp_path / "hub.log"
            async with ClusterApi.open(kubeconfig) as api:
                for index, member in enumerate(MEMBERS):
                    await make(api, objects_of(member, {"group": str(index % NUM_JOBS)}))
                async with (
                    ManyAgents(kubeconfig, MEMBERS) as agents,
                    hub_process(hub_control_plane, namespace, log) as hub,
                ):
                    await scenario(Scene(hub_control_plane, namespace, api, hub), agents)
            assert "Traceback" not in log.read_text(), log.read_text()

        asyncio.run(whole())

    return run


def check_beats(written):
    """Nothing is written but what says that members are there."""
    assert {resource for _, resource in written} == {"leases"}


def errors(answers):
    """Answers that nobody should get; what is not there yet is asked for, and no error."""
    return {status: n for status, n in answers.items() if status not in ("200", "201", "404")}


def test_fifty_members_and_twenty_jobs_are_few_requests(play):
    async def scenario(scene, agents):
        await make(scene.api, [job(scene.namespace, index) for index in range(NUM_JOBS)])
        await scene.until_jobs_say("Ready", "True")
        wanted = NUM_MEMBERS  # one slot each
        assignments = await scene.api.list("TrainerAssignment")
        assert len(assignments.items) == wanted
        await scene.until("Job", lambda jobs: len(jobs) == wanted, "spes.dev/job-uid")

        await scene.settle("spesjobs/status")
        began = time.monotonic()
        async with scene.changes_of_jobs() as changes:
            written, _ = await scene.written_in(RUN_SECONDS)
        watched = time.monotonic() - began  # longer than asked on a slow machine
        assert set(changes) == {job_name(index) for index in range(NUM_JOBS)}
        assert max(changes.values()) <= watched / STATUS_SECONDS + 1
        assert written.pop(("PATCH", "spesjobs/status"))
        check_beats(written)

        await make(
            scene.api, [job(scene.namespace, index, suspend=True) for index in range(NUM_JOBS)]
        )
        await scene.until("TrainerAssignment", lambda left: not left, "spes.dev/job-uid")
        await scene.until_jobs_say("Suspended", "True")
        await scene.settle()
        written, asked = await scene.written_in(REST_SECONDS)
        check_beats(written)
        assert asked <= 2 * NUM_MEMBERS + 4 * NUM_JOBS + 30
        figures = await scene.figures()
        show(f"{figures}; agents {agents.answers}")
        assert figures.resident_bytes < MAX_RESIDENT_BYTES
        assert errors(figures.answers) == errors(agents.answers) == {}

    play(scenario)
