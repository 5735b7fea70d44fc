"""The sync server's workload and its certificate, as the hub writes them. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import timedelta

from spes_api.job import SpesJob

from spes_operator.k8s.api import JsonObject
from spes_operator.k8s.sync_server import (
    SyncServer,
    SyncServerSpec,
    WorkloadMetadata,
)
from spes_operator.k8s.workloads import WorkloadPaths
from spes_operator.names import (
    LABEL_JOB,
    LABEL_JOB_UID,
    sync_server_name,
    sync_tls_name,
)

# Time for peers' last pushes and a commit after the server was asked to end.
GRACE = timedelta(seconds=120)


def server_workload(job: SpesJob, paths: WorkloadPaths) -> SyncServer:
    """The workload; the runner adds the ports, because only it knows which are free."""
    name = job.metadata.name
    return SyncServer(
        metadata=WorkloadMetadata(
            namespace=job.metadata.namespace,
            name=sync_server_name(name),
            labels=_labels(job),
        ),
        spec=SyncServerSpec(
            command=(
                *("spes-sync", "serve"),
                *("--dir", str(paths.work)),
                *("--tls", str(paths.secrets)),
            ),
            directory=str(paths.work),
            tls_secret=sync_tls_name(name),
            tls_directory=str(paths.secrets),
            grace_seconds=int(GRACE.total_seconds()),
        ),
    )


def tls_secret(job: SpesJob, files: Mapping[str, bytes]) -> JsonObject:
    """The Secret with the server's certificate and key."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "namespace": job.metadata.namespace,
            "name": sync_tls_name(job.metadata.name),
            "labels": _labels(job),
        },
        "data": {name: base64.b64encode(data).decode() for name, data in files.items()},
    }


def _labels(job: SpesJob) -> dict[str, str]:
    return {LABEL_JOB: job.metadata.name, LABEL_JOB_UID: job.metadata.uid}
