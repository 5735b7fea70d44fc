"""`spes-operator hub`: the hub's controller over an API server, with its probes and metrics.

The only place where the hub's parts are put together; none of them reads this module.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from spes_api.loading import load_file

from spes_operator.backoff import Backoff
from spes_operator.clock import SystemClock
from spes_operator.daemon.hub_config import Exposure as ExposureConfig
from spes_operator.daemon.hub_config import HubConfig, Issuer
from spes_operator.daemon.hub_metrics import HubMetrics
from spes_operator.daemon.metrics_server import serve_liveness, serve_metrics
from spes_operator.errors import ConfigError, SpesError
from spes_operator.hub.cluster_sync_host import ClusterSettings, ClusterSyncHost
from spes_operator.hub.controller import RESYNC, HubController
from spes_operator.hub.kept import KEPT
from spes_operator.hub.pki import Pki
from spes_operator.hub.pki_secret import open_pki
from spes_operator.hub.server_certificates import (
    CONTROL_NAME,
    IssuedCertificates,
    IssuerRef,
    OwnCertificates,
    ServerCertificates,
)
from spes_operator.hub.settings import HubSettings
from spes_operator.hub.sync_control import GrpcSyncControl, SyncControl, Target
from spes_operator.hub.sync_manifests import Exposure, PodSettings
from spes_operator.hub.view import ServerSeen
from spes_operator.k8s.api import KubeApi
from spes_operator.k8s.cached import CachedApi
from spes_operator.k8s.cluster import ClusterApi
from spes_operator.k8s.kopf_feed import KopfFeed, KopfSettings
from spes_operator.names import LABEL_MEMBER

logger = logging.getLogger(__name__)

# Which objects of a kind the hub watches: a cluster has many other Leases.
LEASES_OF_MEMBERS = {"Lease": LABEL_MEMBER}
# Nothing can be done before the API server serves them.
KINDS = ("SpesJob", "MemberCluster", "MemberReport", "TrainerAssignment")
# Without a pass for so long the process is taken for stuck.
_STUCK_AFTER = 3 * RESYNC
# While the API server is away or refuses at the start.
_RETRIES = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=15))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this program."""
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="F", help="of the hub's cluster (default: this pod's)"
    )
    parser.add_argument(
        "--config", type=Path, required=True, metavar="F", help="the hub's settings, YAML"
    )


async def run(options: argparse.Namespace) -> None:
    """Serve until cancelled.

    Raises:
        ConfigError: The settings, the kubeconfig or the hub's CA cannot be used.
    """
    logging.getLogger("kopf").setLevel(logging.WARNING)
    config = load_file(options.config, HubConfig)
    pulse = _Pulse()
    async with ClusterApi.open(options.kubeconfig) as server:
        with serve_liveness(pulse.is_felt, config.address, config.probe_port):
            pki = await _first_contact(server, config, pulse)
            api = CachedApi(server, KEPT, SystemClock())
            hub = HubController(api, _settings(api, pki, config))
            metrics = HubMetrics(hub.measures, lambda: dict(server.answers), SystemClock())
            feed = KopfFeed(KopfSettings(kubeconfig=options.kubeconfig, labels=LEASES_OF_MEMBERS))
            pulse.idle_for = lambda: max(hub.idle_for, feed.idle_for)
            with serve_metrics(
                metrics, lambda: hub.is_in_touch, config.address, config.metrics_port
            ):
                logger.info("hub ready namespaces=%s", ",".join(config.job_namespaces))
                await hub.run(api.fed_by(feed))


class _Pulse:
    """Whether the program gets on, be it that all it tries fails: asked by the liveness probe."""

    def __init__(self) -> None:
        self._attempt_at = time.monotonic()
        self.idle_for: Callable[[], timedelta] = lambda: timedelta(
            seconds=time.monotonic() - self._attempt_at
        )

    def is_felt(self) -> bool:
        return self.idle_for() < _STUCK_AFTER

    def attempted(self) -> None:
        """Before there is a controller to be asked."""
        self._attempt_at = time.monotonic()


async def _first_contact(api: ClusterApi, config: HubConfig, pulse: _Pulse) -> Pki:
    """The hub's CA, once the API server answers and serves SPES' kinds."""
    failures = 0
    while True:
        try:
            for kind in KINDS:
                pulse.attempted()
                await api.list(kind)
            return await open_pki(api, config.namespace)
        except ConfigError:
            raise
        except SpesError as error:
            logger.warning("hub waits error=%s", error)
        failures += 1
        pulse.attempted()
        await asyncio.sleep(_RETRIES.drawn(failures).total_seconds())


def _settings(api: KubeApi, pki: Pki, config: HubConfig) -> HubSettings:
    settings = ClusterSettings(exposure=_exposure(config.exposure), pod=_pod(config))

    def connect(server: ServerSeen) -> SyncControl:
        target = Target(
            endpoint=server.control_endpoint, ca_pem=server.ca_bundle, name=CONTROL_NAME
        )
        return GrpcSyncControl(target, identity=pki.hub_client())

    return HubSettings(
        host=ClusterSyncHost(api, _certificates(api, pki, config.issuer), settings, SystemClock()),
        connect=connect,
        job_namespaces=tuple(config.job_namespaces),
        images=config.images,
    )


def _certificates(api: KubeApi, pki: Pki, issuer: Issuer | None) -> ServerCertificates:
    if issuer is None:
        return OwnCertificates(api, pki, SystemClock())
    ref = IssuerRef(name=issuer.name, kind=issuer.kind, group=issuer.group)
    return IssuedCertificates(api, pki, ref)


def _exposure(config: ExposureConfig) -> Exposure:
    if config.node_port is not None:
        return Exposure(service_type="NodePort", host=config.node_port.external_host)
    if config.load_balancer is not None:
        return Exposure(service_type="LoadBalancer", annotations=config.load_balancer.annotations)
    assert config.sni is not None  # the model has seen to it
    return Exposure(service_type="ClusterIP", host=config.sni.domain, port=config.sni.port)


def _pod(config: HubConfig) -> PodSettings:
    pod = config.sync
    return PodSettings(
        requests=pod.requests,
        limits=pod.limits,
        node_selector=pod.node_selector,
        priority_class_name=pod.priority_class_name,
        image_pull_secret=pod.image_pull_secret,
        has_issuer=config.issuer is not None,
    )
