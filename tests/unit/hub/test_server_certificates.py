"""The hub's CA and the certificates that it signs: kept, renewed in time, never another's."""

import asyncio
import base64
from datetime import UTC, datetime

import pytest
from builders.clock import FakeClock
from builders.hub_world import job_document, shared_pki
from spes_api.job import SpesJob
from spes_operator.errors import AlreadyExistsError, ConfigError, NotFoundError
from spes_operator.hub.pki import Pki
from spes_operator.hub.pki_secret import open_pki
from spes_operator.hub.server_certificates import (
    IssuedCertificates,
    IssuerRef,
    OwnCertificates,
)
from spes_operator.k8s.memory import MemoryApi

HOST = "hub.example"


def today():
    """Certificates begin at the real time of day."""
    return FakeClock(datetime.now(UTC))


@pytest.fixture
def pki(tmp_path_factory):
    return shared_pki(tmp_path_factory.getbasetemp() / "shared-tls")


def make_job(uid="uid-1"):
    document = job_document()
    document["metadata"]["uid"] = uid
    return SpesJob.model_validate(document)


def certificate_in(secret):
    return base64.b64decode(secret["data"]["tls.crt"])


def tls_of(api):
    return asyncio.run(api.get("Secret", "research", "moe-tiny-sync-tls"))


def test_a_certificate_is_written_once(pki):
    api = MemoryApi()
    certificates = OwnCertificates(api, pki, today())
    for _ in range(2):
        assert asyncio.run(certificates.keep(make_job(), HOST)) == pki.ca_pem
    secret = tls_of(api)
    assert secret["metadata"]["resourceVersion"] == "1"
    assert secret["metadata"]["ownerReferences"][0]["uid"] == "uid-1"
    names = ("spes-sync", HOST)
    assert pki.still_serves(certificate_in(secret), names, now=datetime.now(UTC))


@pytest.mark.parametrize(
    ("days", "host", "uid", "renewed"),
    [
        (200, HOST, "uid-1", False),
        (250, HOST, "uid-1", True),
        (0, "other.example", "uid-1", True),
        (0, HOST, "uid-2", True),
    ],
    ids=["young", "two thirds", "another host", "a namesake's"],
)
def test_a_certificate_is_renewed_in_time(pki, days, host, uid, renewed):
    api, clock = MemoryApi(), today()
    certificates = OwnCertificates(api, pki, clock)
    asyncio.run(certificates.keep(make_job(), HOST))
    before = certificate_in(tls_of(api))
    clock.advance(days * 86_400)
    asyncio.run(certificates.keep(make_job(uid), host))
    assert (certificate_in(tls_of(api)) != before) is renewed


def test_another_hubs_certificate_is_replaced(pki):
    api = MemoryApi()
    asyncio.run(OwnCertificates(api, Pki.new(), today()).keep(make_job(), HOST))
    before = certificate_in(tls_of(api))
    asyncio.run(OwnCertificates(api, pki, today()).keep(make_job(), HOST))
    assert certificate_in(tls_of(api)) != before


def test_an_issuer_is_asked_and_waited_for(pki):
    async def scenario():
        api = MemoryApi()
        issuer = IssuerRef(name="ca", kind="ClusterIssuer", group="cert-manager.io")
        certificates = IssuedCertificates(api, pki, issuer)
        assert await certificates.keep(make_job(), "192.0.2.1") is None
        asked = await api.get("Certificate", "research", "moe-tiny-sync-tls")
        assert asked["spec"]["dnsNames"] == ["spes-sync"]
        assert asked["spec"]["ipAddresses"] == ["192.0.2.1"]
        data = {"tls.crt": "eA==", "tls.key": "eA==", "ca.crt": base64.b64encode(b"CA").decode()}
        metadata = {"namespace": "research", "name": "moe-tiny-sync-tls"}
        await api.create("cert-manager", {"kind": "Secret", "metadata": metadata, "data": data})
        assert await certificates.keep(make_job(), "192.0.2.1") == "CA"
        client_ca = await api.get("Secret", "research", "moe-tiny-sync-client-ca")
        assert base64.b64decode(client_ca["data"]["client-ca.crt"]) == pki.client_ca
        again = await api.get("Certificate", "research", "moe-tiny-sync-tls")
        assert again["metadata"]["resourceVersion"] == asked["metadata"]["resourceVersion"]

    asyncio.run(scenario())


def test_a_restarted_hub_has_the_same_authorities():
    async def scenario():
        api = MemoryApi()
        first = await open_pki(api, "spes-system")
        assert (await open_pki(api, "spes-system")).files() == first.files()

    asyncio.run(scenario())


def test_of_two_hubs_that_start_one_makes_the_authorities():
    class Raced(MemoryApi):
        """Another hub is a moment faster."""

        async def create(self, _owner, obj):
            await super().create("another", obj | {"data": others})
            raise AlreadyExistsError("spes-hub-ca")

    files = Pki.new().files()
    others = {name: base64.b64encode(data).decode() for name, data in files.items()}

    async def scenario():
        assert (await open_pki(Raced(), "spes-system")).files() == files

    asyncio.run(scenario())


@pytest.mark.parametrize("data", [{}, {"ca.crt": "eA==", "ca.key": "eA=="}, {"ca.crt": "%"}])
def test_a_damaged_secret_is_named_and_kept(data):
    async def scenario():
        api = MemoryApi()
        metadata = {"namespace": "spes-system", "name": "spes-hub-ca"}
        await api.create("x", {"kind": "Secret", "metadata": metadata, "data": data})
        with pytest.raises(ConfigError, match="spes-system/spes-hub-ca is damaged"):
            await open_pki(api, "spes-system")
        assert (await api.get("Secret", "spes-system", "spes-hub-ca"))["data"] == data
        with pytest.raises(NotFoundError):
            await api.get("Secret", "spes-system", "other")

    asyncio.run(scenario())
