"""`spes-operator check`: whether a member reaches its hub from where it runs, and else what to do.

Run by `helm test`, with the agent's account, settings and invitation. Asks once, changes nothing.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import aiohttp
from spes_api.loading import load_file

from spes_operator.clock import SystemClock
from spes_operator.daemon import member
from spes_operator.daemon.member_config import MemberConfig
from spes_operator.errors import (
    ConfigError,
    ForbiddenError,
    NotFoundError,
    SpesError,
    UnauthorizedError,
)
from spes_operator.k8s.cluster import ClusterApi
from spes_operator.member.credential_keeper import CredentialKeeper
from spes_operator.member.hub_access import HubFiles
from spes_operator.names import MEMBER_REPORT, member_namespace

logger = logging.getLogger(__name__)

# The agent's own.
add_arguments = member.add_arguments


async def run(options: argparse.Namespace) -> None:
    """Ask the hub for the member's report, with the newest token there is.

    Raises:
        ConfigError: The hub cannot be reached, or does not take the token; says what to do.
    """
    config = load_file(options.config, MemberConfig)
    files = HubFiles(invitation=options.hub_kubeconfig, state=Path(config.state))
    async with ClusterApi.open(options.kubeconfig) as local:
        keeper = CredentialKeeper(
            options.name, files, local, namespace=config.namespace, clock=SystemClock()
        )
        await keeper.prepare()
    async with ClusterApi.open(files.kubeconfig) as hub:
        try:
            await hub.get("MemberReport", member_namespace(options.name), MEMBER_REPORT)
        except NotFoundError:
            logger.info("hub reached member=%s, which has not reported yet", options.name)
        except SpesError as error:
            raise ConfigError(advice(options.name, error)) from error
        else:
            logger.info("hub reached member=%s", options.name)


def advice(name: str, error: SpesError) -> str:
    """What is wrong between a member and its hub, and who can do what about it."""
    if isinstance(error, UnauthorizedError):
        return (
            f"the hub does not know the token of member {name}; ask its admin for: "
            f"spes invite {name} --renew, and apply the file that it writes"
        )
    if isinstance(error, ForbiddenError):
        return (
            f"the hub knows the token, but not as member {name}'s ({error}); apply the file of "
            f"that member's own invitation, or ask the hub's admin for: spes invite {name} --renew"
        )
    if isinstance(error.__cause__, aiohttp.ClientConnectorCertificateError):
        return (
            f"the hub's certificate is not signed by the CA that the invitation names ({error}); "
            "if a proxy opens TLS here, let it pass the hub's address; else ask the hub's admin "
            f"for: spes invite {name} --renew"
        )
    return (
        f"the hub does not answer ({error}); see that firewall, proxy and network policy (the "
        "chart's hub.cidrs) let pods of this namespace reach the address in the invitation"
    )
