"""`spes-operator check-hub`, as `helm test` runs it: what a hub lacks, and who can do what."""

import asyncio

import pytest
from spes_operator.daemon.check_hub import check
from spes_operator.daemon.hub_config import HubConfig
from spes_operator.errors import ConfigError, ForbiddenError, NotFoundError, UnavailableError
from spes_operator.hub.pki_secret import open_pki
from spes_operator.k8s.memory import MemoryApi

CONFIG = HubConfig(
    namespace="spes-system",
    job_namespaces=["research", "teaching"],
    images={"sync": "operator:1", "trainer": "trainer:1"},
    exposure={"nodePort": {"externalHost": "hub.example"}},
)


class Refusing(MemoryApi):
    """An API server that answers one list with an error."""

    def __init__(self, kind, namespace, error):
        super().__init__()
        self._refused, self._error = (kind, namespace), error

    async def list(self, kind, namespace="", labels=None):
        if (kind, namespace) == self._refused:
            raise self._error
        return await super().list(kind, namespace, labels)


def checked(api):
    asyncio.run(check(api, CONFIG))


def test_a_hub_that_has_started_finds_all_it_needs():
    async def started():
        api = MemoryApi()
        await open_pki(api, "spes-system")
        await check(api, CONFIG)

    asyncio.run(started())


@pytest.mark.parametrize(
    ("kind", "namespace", "error", "hint"),
    [
        ("SpesJob", "", NotFoundError("the server has no spesjobs"), "crds.enabled=true"),
        ("Secret", "teaching", ForbiddenError("not in teaching"), "hub.config.jobNamespaces"),
        ("MemberCluster", "", UnavailableError("503"), "see that it is healthy"),
    ],
)
def test_what_is_missing_is_told_with_what_to_do(kind, namespace, error, hint):
    with pytest.raises(ConfigError) as told:
        checked(Refusing(kind, namespace, error))
    assert str(error) in str(told.value)
    assert hint in str(told.value)


def test_a_hub_that_has_not_started_is_told():
    with pytest.raises(ConfigError, match="has not started yet"):
        checked(MemoryApi())
