"""`spes-operator member`: the agent of one institution's cluster, connected outwards alone."""

from __future__ import annotations

import argparse
import asyncio
import logging
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

from spes_api.loading import load_file

from spes_operator.clock import SystemClock
from spes_operator.daemon.member_config import MemberConfig
from spes_operator.daemon.member_metrics import MemberMetrics, Sources
from spes_operator.daemon.member_settings import inventory_settings, limits, pod_settings
from spes_operator.daemon.metrics_server import serve_liveness, serve_metrics
from spes_operator.k8s.api import WatchEvent
from spes_operator.k8s.cluster import ClusterApi
from spes_operator.k8s.kopf_feed import KopfFeed, KopfSettings
from spes_operator.member.cluster_backend import ClusterBackend
from spes_operator.member.cluster_inventory import ClusterInventory
from spes_operator.member.controller import MemberController, MemberSettings
from spes_operator.member.credential_keeper import CredentialKeeper
from spes_operator.member.hub_access import HubFiles
from spes_operator.member.pod_manifest import POD_PATHS

# When kopf's loop, which turns every few seconds, is taken for stuck.
_STUCK_AFTER = timedelta(seconds=90)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The sub-command's options."""
    parser.add_argument("--name", required=True, help="this member's name at the hub")
    parser.add_argument(
        "--hub-kubeconfig", type=Path, required=True, metavar="F", help="from `spes invite NAME`"
    )
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="F", help="of this cluster (default: of this pod)"
    )
    parser.add_argument(
        "--config", type=Path, required=True, metavar="F", help="what is lent, and the veto; YAML"
    )


async def run(options: argparse.Namespace) -> None:
    """Work until cancelled; trainers go on without the agent.

    Raises:
        ConfigError: The settings, a kubeconfig or the invitation cannot be used.
        SpesError: This cluster's API server does not answer at the start.
    """
    logging.getLogger("kopf").setLevel(logging.WARNING)
    config = load_file(options.config, MemberConfig)
    files = HubFiles(invitation=options.hub_kubeconfig, state=Path(config.state))
    working: list[_Agent] = []
    async with ClusterApi.open(options.kubeconfig) as local:
        keeper = CredentialKeeper(
            options.name, files, local, namespace=config.namespace, clock=SystemClock()
        )
        with serve_liveness(
            lambda: all(agent.is_alive() for agent in working), config.address, config.probe_port
        ):
            while True:
                await keeper.prepare()
                async with ClusterApi.open(files.kubeconfig) as hub:
                    await keeper.renew(hub)  # before the first report: it names what is used
                    working[:] = [_Agent(config, options.kubeconfig, local)]
                    await working[0].run(options.name, hub, files, keeper)
                    working.clear()  # what has ended is not stuck


class _Agent:
    """One agent, put together; knows its own cluster from the start, and the hub when it runs."""

    def __init__(self, config: MemberConfig, kubeconfig: Path | None, local: ClusterApi) -> None:
        """Nothing is read before `run`."""
        self._config = config
        self._kubeconfig = kubeconfig
        self._local = local
        self._clock = SystemClock()
        self._feed = KopfFeed(KopfSettings(kubeconfig=kubeconfig))
        self._backend = ClusterBackend(local, self._feed, pod_settings(config))
        self._inventory = ClusterInventory(
            local,
            inventory_settings(config, version("spes")),
            placed=lambda: self._backend.placed,
            kubernetes_version=local.server_version,
            clock=self._clock,
        )
        self._controller: MemberController | None = None

    async def run(
        self, name: str, hub: ClusterApi, files: HubFiles, keeper: CredentialKeeper
    ) -> None:
        """Work until cancelled, or until the hub is to be reached in another way."""
        metrics = MemberMetrics()
        settings = MemberSettings(
            inventory=self._inventory.inventory,
            paths=lambda _: POD_PATHS,
            limits=limits(self._config),
            feed=KopfFeed(KopfSettings(kubeconfig=files.kubeconfig)),
            credential=keeper.report,
            measured=metrics.add_pass,
            heartbeat=timedelta(seconds=self._config.heartbeat_seconds),
            clock=self._clock,
        )
        controller = MemberController(name, hub, self._backend, settings)
        self._controller = controller
        metrics.sources = Sources(
            health=controller.health,
            credential_expires_in=lambda: keeper.expires_in,
            renewal_failures=lambda: keeper.failures,
            answers=lambda: {"hub": dict(hub.answers), "local": dict(self._local.answers)},
        )
        with serve_metrics(
            metrics,
            lambda: controller.health.reaches_hub,
            self._config.address,
            self._config.metrics_port,
        ):
            async with asyncio.TaskGroup() as tasks:
                working = [tasks.create_task(controller.run())]
                if not self._config.slots:
                    feed = KopfFeed(KopfSettings(kubeconfig=self._kubeconfig))
                    working.append(tasks.create_task(feed.run({"Node": self._on_node}, "")))
                await keeper.run(hub, controller.wake)
                for task in working:
                    task.cancel()

    def is_alive(self) -> bool:
        """Its loops get on, be it that all they try fails, and kopf's own one turns."""
        if self._feed.idle_for > _STUCK_AFTER:
            return False
        return self._controller is None or not self._controller.health.stuck_loops()

    def _on_node(self, event: WatchEvent) -> None:
        if self._inventory.on_node(event.object) and self._controller is not None:
            self._controller.wake()
