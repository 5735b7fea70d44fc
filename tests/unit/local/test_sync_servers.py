"""The sync server as a process: found where it was, always started again, stopped for good."""

import asyncio
import base64
import json
import sys
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from builders.processes import DEADLINE_SECONDS, gone
from spes_operator.k8s.memory import MemoryApi
from spes_operator.k8s.sync_server import SyncServer, SyncServerSpec
from spes_operator.local.process_log import last_line
from spes_operator.local.sync_servers import KIND, SyncServers

# Listens nowhere; says the ports it was told, or 4001 and 4002.
SERVER = """
import json, os, pathlib, sys, time
given = dict(zip(sys.argv[1::2], map(int, sys.argv[2::2])))
port, control = given["--port"] or 4001, given["--control-port"] or 4002
print("serving", port, pathlib.Path("tls/tls.key").read_text(), flush=True)
ready = {"port": port, "controlPort": control, "pid": os.getpid()}
pathlib.Path("new").write_text(json.dumps(ready))
os.rename("new", "ready.json")
time.sleep(60)
"""
BROKEN = "print('volume held by another server'); raise SystemExit(2)"


def make_server(directory, source):
    spec = SyncServerSpec(
        command=(sys.executable, "-I", "-c", source),
        directory=str(directory),
        tls_secret="tls",
        tls_directory=str(directory / "tls"),
        grace_seconds=20,
    )
    return SyncServer(metadata={"name": "job-sync", "namespace": "research"}, spec=spec)


@asynccontextmanager
async def served(directory, source):
    """An API with one sync server, and what runs it."""
    api = MemoryApi()
    key = base64.b64encode(b"private").decode()
    metadata = {"name": "tls", "namespace": "research"}
    await api.create(
        "hub",
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"tls.key": key}},
    )
    await api.create("hub", make_server(directory, source).to_json())
    servers = SyncServers(api, environment={}, logs=directory / "logs")
    running = asyncio.create_task(servers.run())
    try:
        yield api, servers
    finally:
        running.cancel()
        await asyncio.wait([running])


async def status_where(api, holds):
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            status = (await api.get(KIND, "research", "job-sync")).get("status", {})
            if status and holds(status):
                return status
            await asyncio.sleep(0.01)


def ready_pid(directory):
    return json.loads((directory / "ready.json").read_bytes())["pid"]


@pytest.mark.parametrize("left", [None, b"{", b"[]"], ids=["nothing", "a part", "something else"])
def test_it_says_where_it_listens_and_has_its_certificate(tmp_path, left):
    """Whatever a former process has left."""
    if left is not None:
        (tmp_path / "ready.json").write_bytes(left)

    async def story():
        async with served(tmp_path, SERVER) as (api, _):
            return await status_where(api, lambda status: status["ready"])

    status = asyncio.run(story())
    assert (status["endpoint"], status["controlEndpoint"]) == ("127.0.0.1:4001", "127.0.0.1:4002")
    assert last_line(tmp_path / "logs" / "job-sync.log") == "serving 4001 private"


def test_killed_it_comes_back_on_the_same_ports(tmp_path):
    source = SERVER.replace("or 4001", "or os.getpid()")

    async def story():
        async with served(tmp_path, source) as (api, servers):
            first = await status_where(api, lambda status: status["ready"])
            pid = ready_pid(tmp_path)
            await servers.kill()
            gone_status = await status_where(api, lambda status: not status["ready"])
            assert (gone_status["endpoint"], gone_status["restarts"]) == (first["endpoint"], 1)
            assert "ended with 137" in gone_status["message"]
            second = await status_where(api, lambda status: status["ready"])
            assert second["endpoint"] == first["endpoint"]
            assert ready_pid(tmp_path) != pid

    asyncio.run(story())


def test_one_that_cannot_start_says_why(tmp_path):
    async def story():
        async with served(tmp_path, BROKEN) as (api, _):
            return await status_where(api, lambda status: status["restarts"] >= 1)

    message = asyncio.run(story())["message"]
    assert "ended with 2" in message
    assert message.endswith("volume held by another server")


def test_deleting_the_object_stops_it(tmp_path):
    async def story():
        async with served(tmp_path, SERVER) as (api, _):
            await status_where(api, lambda status: status["ready"])
            await api.delete(KIND, "research", "job-sync")
            await gone(ready_pid(tmp_path))

    asyncio.run(story())


def test_stopped_it_is_not_started_again(tmp_path):
    async def story():
        async with served(tmp_path, SERVER) as (api, servers):
            await status_where(api, lambda status: status["ready"])
            pid = ready_pid(tmp_path)
            async with asyncio.timeout(timedelta(seconds=DEADLINE_SECONDS).total_seconds()):
                await servers.stop()
            await gone(pid)
            assert not (await status_where(api, lambda status: not status["ready"]))["message"]
            assert ready_pid(tmp_path) == pid

    asyncio.run(story())


def test_what_ends_the_care_for_a_server_is_not_swallowed(tmp_path):
    (tmp_path / "ready.json").mkdir()

    async def story():
        async with served(tmp_path, SERVER) as (_, servers), asyncio.timeout(DEADLINE_SECONDS):
            while True:
                servers.check()
                await asyncio.sleep(0.01)

    with pytest.raises(IsADirectoryError):
        asyncio.run(story())
