"""`spes-operator check`: whether a member reaches its hub from where it runs, and else what to do.

Run by `helm test`, with the agent's account, settings and invitation. Asks once, changes nothing.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from spes_api.loading import load_file

from spes_operator.clock import SystemClock
from spes_operator.daemon import member
from spes_operator.daemon.member_config import MemberConfig
from spes_operator.errors import ConfigError, NotFoundError, SpesError
from spes_operator.k8s.cluster import ClusterApi
from spes_operator.member.advice import advice
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
