"""The hub's settings file: what the chart's values say, in one frozen model. Pure.

Read by `hub`. Paths and secrets are no part of it.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator
from spes_api.schema_base import ApiModel, Labels, Resources, Word
from spes_api.status import Images

NamespaceName = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)
]
# 0: not served.
Port = Annotated[int, Field(ge=0, le=65_535)]


class NodePort(ApiModel):
    """Peers reach sync servers on a port of the hub cluster's nodes."""

    external_host: Annotated[str, StringConstraints(min_length=1, max_length=253)]
    """Name or address of the nodes as members see them."""


class LoadBalancer(ApiModel):
    """Each sync server gets an address of its own from the cluster's load balancer."""

    annotations: Labels = Field(default_factory=dict)
    """For the Service, as the provider wants them."""


class Sni(ApiModel):
    """One port for all jobs; a TLS passthrough proxy tells them apart by the name asked for."""

    domain: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    """A job is reached at <first eight characters of its UID>.<domain>."""
    port: Annotated[int, Field(ge=1, le=65_535)] = 443
    """Of the proxy."""


class Exposure(ApiModel):
    """How members reach sync servers: exactly one of these."""

    node_port: NodePort | None = None
    """Ports of the nodes."""
    load_balancer: LoadBalancer | None = None
    """Addresses of their own."""
    sni: Sni | None = None
    """One address, told apart by name."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [one for one in (self.node_port, self.load_balancer, self.sni) if one is not None]
        if len(given) != 1:
            raise ValueError(f"must hold one of nodePort, loadBalancer, sni (got {len(given)})")
        return self


class Issuer(ApiModel):
    """A cert-manager issuer that signs the sync servers' certificates instead of the hub's CA."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=253)]
    """Of the issuer; its Secrets must carry ca.crt."""
    kind: Word = "Issuer"
    """Issuer or ClusterIssuer."""
    group: Word = "cert-manager.io"
    """Of external issuers, their own."""


class SyncPod(ApiModel):
    """The sync servers' pods."""

    requests: Resources = Field(default_factory=lambda: {"cpu": "500m", "memory": "1Gi"})
    """Kubernetes resource requests."""
    limits: Resources = Field(default_factory=dict)
    """Kubernetes resource limits; memory grows with the model."""
    node_selector: Labels = Field(default_factory=dict)
    """Nodes they may run on."""
    priority_class_name: Word = ""
    """Empty: the cluster's default."""
    image_pull_secret: Word = ""
    """In every job namespace; empty: none."""


class HubConfig(ApiModel):
    """All of it."""

    namespace: NamespaceName = "spes-system"
    """The hub's own, where it keeps its certificate authorities."""
    job_namespaces: Annotated[list[NamespaceName], Field(min_length=1, max_length=256)]
    """Where SpesJobs are carried out; those elsewhere are not looked at."""
    images: Images
    """Of sync servers, and of trainers whose job names none."""
    exposure: Exposure
    """How members reach sync servers."""
    issuer: Issuer | None = None
    """Absent: the hub's own CA signs."""
    sync: SyncPod = SyncPod()
    """Sync servers' pods."""
    address: Word = "0.0.0.0"  # noqa: S104 - in a pod, whose network policy decides
    """Where probes and metrics are served."""
    probe_port: Port = 8080
    """Of /healthz, which answers from the first moment on; 0: not served."""
    metrics_port: Port = 9090
    """Of /metrics and /readyz, once the API server has answered; 0: not served."""
