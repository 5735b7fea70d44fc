"""Jobs of a member as processes: files, probes, restarts, nodes that go, nothing left behind."""

import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from builders.processes import DEADLINE_SECONDS, gone, make_job, until, written
from spes_operator.errors import AlreadyExistsError
from spes_operator.k8s.workloads import FileProbe, SecretMount, Stop
from spes_operator.local.jobs import ProcessCluster
from spes_operator.local.node import Node

GRACE = timedelta(seconds=20)
COUNTS_STARTS = """
import os, pathlib, time
with open("starts", "a") as starts:
    starts.write(f"{os.getpid()}\\n")
"""
READY = COUNTS_STARTS + "pathlib.Path('ready').touch(); time.sleep(60)\n"
POLITE = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\n" + READY
READY_PROBE = FileProbe(path="ready", max_age=timedelta(seconds=60))


@asynccontextmanager
async def cluster_in(directory):
    node = Node(directory=directory, log=directory / "log", environment={})
    cluster = ProcessCluster({"0": node})
    cluster.return_nodes()
    try:
        yield cluster
    finally:
        await cluster.close(timedelta(0))


async def status_where(cluster, holds):
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            (job,) = await cluster.jobs()
            if holds(job.status):
                return job.status
            await asyncio.sleep(0.01)


def starts(directory):
    return [int(line) for line in (directory / "starts").read_text().split()]


def test_a_job_is_ready_while_its_file_is_there_and_done_when_it_exits_0(tmp_path):
    source = READY.replace("time.sleep(60)", "time.sleep(0.3)")

    async def story():
        async with cluster_in(tmp_path) as cluster:
            await cluster.create(make_job(source, ready_probe=READY_PROBE))
            assert (await status_where(cluster, lambda status: status.ready)).active
            done = await status_where(cluster, lambda status: not status.active)
            assert (done.ready, done.reason, done.exit_code) == (False, "Completed", 0)

    asyncio.run(story())
    assert len(starts(tmp_path)) == 1


def test_a_stale_ready_file_does_not_count(tmp_path):
    (tmp_path / "ready").touch()

    async def story():
        async with cluster_in(tmp_path) as cluster:
            await cluster.create(
                make_job(COUNTS_STARTS + "time.sleep(60)", ready_probe=READY_PROBE)
            )
            await written(tmp_path / "starts")
            (job,) = await cluster.jobs()
            assert not job.status.ready

    asyncio.run(story())


def test_a_failing_job_is_started_again_up_to_its_limit(tmp_path):
    async def story():
        async with cluster_in(tmp_path) as cluster:
            await cluster.create(
                make_job(COUNTS_STARTS + "print('no luck'); raise SystemExit(1)", backoff_limit=1)
            )
            return await status_where(cluster, lambda status: not status.active)

    status = asyncio.run(story())
    assert (status.reason, status.restarts) == ("BackoffLimitExceeded", 2)
    assert status.message.endswith(f"log {tmp_path / 'log'}: no luck")
    assert len(starts(tmp_path)) == 2


def test_a_killed_process_is_replaced_and_not_counted(tmp_path):
    async def story():
        async with cluster_in(tmp_path) as cluster:
            await cluster.create(make_job(READY, backoff_limit=0, ready_probe=READY_PROBE))
            await status_where(cluster, lambda status: status.ready)
            await cluster.kill_processes()
            await until(lambda: len(starts(tmp_path)) == 2)
            status = await status_where(cluster, lambda status: status.ready)
            assert (status.restarts, status.exit_code) == (0, 137)

    asyncio.run(story())


def test_nothing_starts_on_a_node_that_was_taken_away(tmp_path):
    async def story():
        async with cluster_in(tmp_path) as cluster:
            await cluster.create(make_job(POLITE, ready_probe=READY_PROBE))
            await status_where(cluster, lambda status: status.ready)
            await cluster.take_nodes(GRACE)
            status = await status_where(cluster, lambda status: status.reason == "Unschedulable")
            assert (status.exit_code, status.ready, len(starts(tmp_path))) == (75, False, 1)
            cluster.return_nodes()
            await status_where(cluster, lambda status: status.ready)

    asyncio.run(story())
    assert len(starts(tmp_path)) == 2


def test_a_stopped_job_is_no_longer_listed_and_its_process_is_gone(tmp_path):
    async def story():
        async with cluster_in(tmp_path) as cluster:
            await cluster.create(make_job(POLITE, ready_probe=READY_PROBE))
            await status_where(cluster, lambda status: status.ready)
            await cluster.stop(Stop(name="job", grace=GRACE))
            async with asyncio.timeout(DEADLINE_SECONDS):
                while await cluster.jobs():
                    await asyncio.sleep(0.01)
            await cluster.stop(Stop(name="job", grace=GRACE))  # gone: no error
            await gone(starts(tmp_path)[0])

    asyncio.run(story())


def test_closing_leaves_no_process(tmp_path):
    async def story():
        async with cluster_in(tmp_path) as cluster:
            await cluster.create(make_job(READY, ready_probe=READY_PROBE))
            await status_where(cluster, lambda status: status.ready)
        return starts(tmp_path)

    (pid,) = asyncio.run(story())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_job_waits_for_its_secret_and_gets_it_as_a_private_file(tmp_path):
    mount = SecretMount(secret="join", directory=tmp_path / "secrets")
    source = "import pathlib; print(pathlib.Path('secrets/token').read_text())"

    async def story():
        async with cluster_in(tmp_path) as cluster:
            await cluster.create(make_job(source, secret_mounts=(mount,)))
            waiting = await status_where(cluster, lambda status: status.reason != "")
            assert waiting.message == "secret join not found"
            await cluster.put_secret("join", {"token": b"one-time"}, {"a": "b"})
            assert await cluster.secrets() == {"join": {"a": "b"}}
            await status_where(cluster, lambda status: status.reason == "Completed")
            await cluster.put_secret("join", {"token": b"the next"}, {})

    asyncio.run(story())
    assert (tmp_path / "log").read_text() == "one-time\n"
    assert (tmp_path / "secrets" / "token").read_bytes() == b"the next"
    assert (tmp_path / "secrets" / "token").stat().st_mode & 0o777 == 0o600


def test_a_second_job_of_the_same_name_is_refused(tmp_path):
    async def story():
        async with cluster_in(tmp_path) as cluster:
            await cluster.create(make_job("pass"))
            with pytest.raises(AlreadyExistsError, match="job job exists"):
                await cluster.create(make_job("pass"))

    asyncio.run(story())


def test_a_change_of_status_wakes_the_listener(tmp_path):
    async def story():
        async with cluster_in(tmp_path) as cluster, asyncio.timeout(DEADLINE_SECONDS):
            changes = cluster.changes()
            waiting = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)  # lets it subscribe
            await cluster.create(make_job("pass"))
            await waiting
            await changes.aclose()

    asyncio.run(story())


def test_what_ends_the_care_for_a_job_is_not_swallowed(tmp_path):
    """The probe's folder turns out to be a file: nothing that a job's rules foresee."""

    async def story():
        async with cluster_in(tmp_path) as cluster:
            source = COUNTS_STARTS + "pathlib.Path('state').touch(); time.sleep(60)\n"
            await cluster.create(
                make_job(source, ready_probe=replace(READY_PROBE, path="state/ready"))
            )
            async with asyncio.timeout(DEADLINE_SECONDS):
                while True:
                    cluster.check()
                    await asyncio.sleep(0.01)

    with pytest.raises(NotADirectoryError):
        asyncio.run(story())
