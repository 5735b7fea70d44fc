"""The hub's control client against a real sync server."""

import asyncio
from datetime import UTC, datetime, timedelta

import grpc
import pytest
from builders.sync_server import job_settings, running_server
from builders.tls import TestTls
from spes_operator.errors import ConflictError, UnavailableError
from spes_operator.hub import sync_control
from spes_operator.hub.pki import Pki
from spes_operator.hub.sync_control import GrpcSyncControl, Target
from spes_operator.hub.sync_state import DrainOrder, Phase, SyncPlan, TokenHash
from spes_operator.names import CLIENT_CA_FILE, TLS_CERT_FILE, TLS_KEY_FILE
from spes_proto.v1 import control_pb2, control_pb2_grpc
from spes_sync.server import control_service


def tls_from(pki, folder):
    folder.mkdir()
    for name, data in pki.server_files().items():
        (folder / name).write_bytes(data)
    (folder / "ca.crt").write_text(pki.ca_pem)
    hub = pki.hub_client()
    return TestTls(folder, folder / "ca.crt", hub.certificate, hub.key)


@pytest.fixture
def pki(tmp_path):
    return Pki.open(tmp_path / "pki")


@pytest.fixture
def server(pki, tmp_path):
    (tmp_path / "sync").mkdir()
    with running_server(tmp_path / "sync", tls=tls_from(pki, tmp_path / "tls")) as running:
        yield running


def plan(**changes):
    values = {
        "job_uid": "uid-1",
        "incarnation": 1,
        "settings_json": job_settings(),
        "epoch": 0,
        "owners": {},
        "granted": {},
        "parked": (),
        "replicated": False,
        "peers": (),
        "seed_peer": None,
        "tokens": (
            TokenHash(
                id="00" * 8,
                peer="uni-a.0",
                sha256="ab" * 32,
                expires_at=datetime.now(UTC) + timedelta(hours=1),
            ),
        ),
    }
    return SyncPlan(**(values | changes))


async def first_state(control, condition=lambda _: True):
    async with asyncio.timeout(10):
        async for state in control.watch():
            if condition(state):
                return state
    raise AssertionError("the watch ended")


def control_of(where, pki, name=""):
    target = Target(endpoint=where, ca_pem=pki.ca_pem, name=name)
    return GrpcSyncControl(target, identity=pki.hub_client())


def endpoint(server):
    return f"127.0.0.1:{server.ports.control_port}"


def test_hub_drives_a_real_server(server, pki):
    async def scenario():
        control = control_of(endpoint(server), pki)
        try:
            assert (await first_state(control)).job_uid == ""
            await control.apply_plan(plan())
            owned = plan(epoch=3, owners={0: "uni-a.0"}, granted={0: 3}, peers=("uni-a.0",))
            await control.apply_plan(owned)
            await control.apply_plan(owned)
            state = await first_state(control, lambda state: state.epoch == 3)
            assert (state.job_uid, state.incarnation, state.version) == ("uid-1", 1, -1)
            assert state.phase is Phase.SEEDING
            with pytest.raises(ConflictError):
                await control.apply_plan(plan(epoch=2))
            await control.drain(
                DrainOrder(peers=("uni-a.0",), grace=timedelta(seconds=1), reason="test")
            )
        finally:
            await control.close()

    asyncio.run(scenario())


def test_a_higher_incarnation_seeds_again(server, pki):
    async def scenario():
        control = control_of(endpoint(server), pki)
        try:
            await control.apply_plan(plan())
            await control.apply_plan(plan(incarnation=2))
            state = await first_state(control, lambda state: state.incarnation == 2)
            assert state.phase is Phase.SEEDING
        finally:
            await control.close()

    asyncio.run(scenario())


def test_a_hub_of_other_authorities_is_refused(server, tmp_path):
    async def scenario():
        control = control_of(endpoint(server), Pki.open(tmp_path / "other"))
        try:
            with pytest.raises(UnavailableError):
                await control.apply_plan(plan())
        finally:
            await control.close()

    asyncio.run(scenario())


def test_a_servers_own_certificate_does_not_open_the_control_port(server, pki):
    files = pki.server_files()
    assert set(files) == {TLS_CERT_FILE, TLS_KEY_FILE, CLIENT_CA_FILE}
    credentials = grpc.ssl_channel_credentials(
        pki.ca_pem.encode(), files[TLS_KEY_FILE], files[TLS_CERT_FILE]
    )
    with grpc.secure_channel(endpoint(server), credentials) as channel:
        stub = control_pb2_grpc.ControlStub(channel)
        with pytest.raises(grpc.RpcError):
            stub.ApplyPlan(control_pb2.SyncPlan(), timeout=5)


def test_an_absent_server_is_unavailable(pki):
    async def scenario():
        control = control_of("127.0.0.1:1", pki)
        try:
            with pytest.raises(UnavailableError):
                await first_state(control)
        finally:
            await control.close()

    asyncio.run(scenario())


def test_a_quiet_server_is_heard_and_one_that_hangs_is_away(server, pki, monkeypatch):
    async def scenario():
        control = control_of(endpoint(server), pki)
        try:
            watch = control.watch()
            for _ in range(2):  # nothing happens meanwhile
                assert (await anext(watch)).job_uid == ""
            monkeypatch.setattr(sync_control, "_SILENCE_SECONDS", 0.2)
            with pytest.raises(UnavailableError, match=r"has said nothing for 0\.2 s"):
                await anext(watch)
        finally:
            await control.close()

    monkeypatch.setattr(control_service, "WATCH_SILENCE", timedelta(seconds=0.1))
    asyncio.run(scenario())
