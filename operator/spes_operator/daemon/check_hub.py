"""`spes-operator check-hub`: whether a hub finds what it works with, and else what to do.

Run by `helm test`, with the hub's account and settings. Asks once, changes nothing.
"""

from __future__ import annotations

import argparse
import logging

from spes_api.loading import load_file

from spes_operator.daemon import hub
from spes_operator.daemon.hub_config import HubConfig
from spes_operator.errors import ConfigError, ForbiddenError, NotFoundError, SpesError
from spes_operator.k8s.api import KubeApi
from spes_operator.k8s.cluster import ClusterApi
from spes_operator.names import HUB_CA_SECRET

logger = logging.getLogger(__name__)

# The hub's own.
add_arguments = hub.add_arguments


async def run(options: argparse.Namespace) -> None:
    """Read what the hub reads, once.

    Raises:
        ConfigError: Something is missing or not allowed; says what to do.
    """
    config = load_file(options.config, HubConfig)
    async with ClusterApi.open(options.kubeconfig) as api:
        await check(api, config)
    logger.info("hub finds all it needs namespaces=%s", ",".join(config.job_namespaces))


async def check(api: KubeApi, config: HubConfig) -> None:
    """Read SPES' kinds, the namespaces of jobs and the hub's authorities.

    Raises:
        ConfigError: As of `run`.
    """
    try:
        for kind in hub.KINDS:
            await api.list(kind)
        for namespace in config.job_namespaces:
            await api.list("Secret", namespace)
        await api.get("Secret", config.namespace, HUB_CA_SECRET)
    except SpesError as error:
        raise ConfigError(_advice(config, error)) from error


def _advice(config: HubConfig, error: SpesError) -> str:
    if isinstance(error, ForbiddenError):
        return (
            f"the hub's account lacks a right ({error}); roles and bindings are the chart's: "
            "upgrade the release, with every namespace of jobs in hub.config.jobNamespaces"
        )
    if isinstance(error, NotFoundError) and HUB_CA_SECRET in str(error):
        return (
            f"the hub has not started yet ({error}); see "
            f"kubectl -n {config.namespace} logs deployment/spes-hub"
        )
    if isinstance(error, NotFoundError):
        return (
            f"SPES' kinds are not installed ({error}); upgrade the release with crds.enabled=true, "
            "or apply the files in crds/"
        )
    return f"the API server does not answer as it should ({error}); see that it is healthy"
