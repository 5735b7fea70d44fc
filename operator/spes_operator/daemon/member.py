"""`spes-operator member`: the agent of one institution's cluster, connected outwards alone."""

from __future__ import annotations

import argparse
import asyncio
import logging
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

from spes_api.loading import load_file

from spes_operator.clock import SystemClock
from spes_operator.daemon.member_config import MemberConfig
from spes_operator.daemon.member_metrics import MemberMetrics, Sources
from spes_operator.daemon.member_settings import inventory_settings, limits, pod_settings
from spes_operator.daemon.metrics_server import serve_metrics
from spes_operator.k8s.cluster import ClusterApi
from spes_operator.k8s.kopf_feed import KopfFeed, KopfSettings
from spes_operator.member.cluster_backend import ClusterBackend
from spes_operator.member.cluster_inventory import ClusterInventory
from spes_operator.member.controller import MemberController, MemberSettings
from spes_operator.member.credential_keeper import CredentialKeeper
from spes_operator.member.hub_access import HubFiles
from spes_operator.member.pod_manifest import POD_PATHS


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """The command line."""

    name: str
    hub_kubeconfig: Path
    kubeconfig: Path | None
    config: Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The sub-command's options."""
    parser.add_argument("--name", required=True, help="this member's name at the hub")
    parser.add_argument(
        "--hub-kubeconfig", type=Path, required=True, metavar="F", help="from `spes invite NAME`"
    )
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="F", help="of this cluster (default: of this pod)"
    )
    parser.add_argument("--config", type=Path, required=True, metavar="F", help="what is lent")


async def run(options: argparse.Namespace) -> None:
    """Work until cancelled; trainers go on without the agent.

    Raises:
        ConfigError: The settings, a kubeconfig or the invitation cannot be used.
        SpesError: This cluster's API server does not answer at the start.
    """
    given = MemberOptions(
        name=options.name,
        hub_kubeconfig=options.hub_kubeconfig,
        kubeconfig=options.kubeconfig,
        config=options.config,
    )
    logging.getLogger("kopf").setLevel(logging.WARNING)
    config = load_file(given.config, MemberConfig)
    files = HubFiles(invitation=given.hub_kubeconfig, state=Path(config.state))
    async with ClusterApi.open(given.kubeconfig) as local:
        keeper = CredentialKeeper(
            given.name, files, local, namespace=config.namespace, clock=SystemClock()
        )
        await keeper.prepare()
        async with ClusterApi.open(files.kubeconfig) as hub:
            await keeper.renew(hub)  # before the first report, so that it names what is used
            await Agent(given, config, files, keeper, Apis(hub=hub, local=local)).run()


@dataclass(frozen=True, slots=True, kw_only=True)
class Apis:
    """The two API servers of a member."""

    hub: ClusterApi
    local: ClusterApi


class Agent:
    """The parts of one agent, put together."""

    def __init__(
        self,
        options: MemberOptions,
        config: MemberConfig,
        files: HubFiles,
        keeper: CredentialKeeper,
        apis: Apis,
    ) -> None:
        """Nothing is read before `run`."""
        self._config = config
        self._keeper = keeper
        self._apis = apis
        clock = SystemClock()
        probes = f"http://{config.address}:{config.probe_port}/healthz" if config.probe_port else ""
        local_feed = KopfFeed(
            KopfSettings(
                kubeconfig=options.kubeconfig,
                liveness_endpoint=probes,
                is_alive=lambda: not self._controller.health.stuck_loops(),
            )
        )
        backend = ClusterBackend(apis.local, local_feed, pod_settings(config))
        self._node_feed = KopfFeed(KopfSettings(kubeconfig=options.kubeconfig))
        self._inventory = ClusterInventory(
            apis.local,
            inventory_settings(config, version("spes")),
            placed=lambda: backend.nodes,
            kubernetes_version=apis.local.server_version,
            clock=clock,
        )
        self._metrics = MemberMetrics(
            Sources(
                health=lambda: self._controller.health,
                credential_expires_in=lambda: keeper.expires_in,
                renewal_failures=lambda: keeper.failures,
                answers=lambda: {"hub": apis.hub.answers, "local": apis.local.answers},
            )
        )
        self._controller = MemberController(
            options.name,
            apis.hub,
            backend,
            MemberSettings(
                inventory=self._inventory.inventory,
                paths=lambda _: POD_PATHS,
                limits=limits(config),
                feed=KopfFeed(KopfSettings(kubeconfig=files.kubeconfig)),
                credential=keeper.report,
                measured=self._metrics.add_pass,
                heartbeat=timedelta(seconds=config.heartbeat_seconds),
                clock=clock,
            ),
        )

    async def run(self) -> None:
        """Work until cancelled."""
        config = self._config
        with serve_metrics(self._metrics, self._reaches_hub, config.address, config.metrics_port):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._controller.run())
                tasks.create_task(self._keeper.run(self._apis.hub, self._controller.wake))
                if not config.slots:
                    tasks.create_task(self._node_feed.run({"Node": self._on_node}, ""))

    def _reaches_hub(self) -> bool:
        return self._controller.health.reaches_hub

    def _on_node(self, node: dict[str, object]) -> None:
        if self._inventory.on_node(node):
            self._controller.wake()
