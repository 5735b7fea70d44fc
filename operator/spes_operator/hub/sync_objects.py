"""What the sync server's objects have in common wherever it runs. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from spes_api.job import SpesJob

from spes_operator.k8s.api import JsonObject
from spes_operator.names import LABEL_JOB, LABEL_JOB_UID


def secret(job: SpesJob, name: str, files: Mapping[str, bytes]) -> JsonObject:
    """A Secret of these files, in the job's namespace."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "namespace": job.metadata.namespace,
            "name": name,
            "labels": labels(job),
        },
        "data": {file: base64.b64encode(data).decode() for file, data in files.items()},
    }


def labels(job: SpesJob) -> dict[str, str]:
    """Of everything that is derived from the job."""
    return {LABEL_JOB: job.metadata.name, LABEL_JOB_UID: job.metadata.uid}
