"""The SpesJob of the end-to-end tests: `examples/moe-tiny.yaml` on the members' own text."""

from pathlib import Path
from typing import Any

import yaml
from spes_operator.k8s.api import JsonObject

NAME = "moe-tiny"
UNREACHABLE_SECONDS, REASSIGN_SECONDS = 15, 45
_EXAMPLE = Path(__file__).parents[2] / "examples/moe-tiny.yaml"
_LONG = 10**8


def make_job(name: str = NAME, **spec: Any) -> JsonObject:
    """The example with what a test changes; it does not end by itself."""
    job: JsonObject = yaml.safe_load(_EXAMPLE.read_text())
    job["metadata"]["name"] = name
    given = job["spec"]
    given["data"]["sources"] = [{"dataset": {"name": "text"}}]
    given["training"] |= {"maxTokens": _LONG, "batchTokens": 512, "microBatchTokens": 512}
    given["members"]["min"] = 1
    given["sync"]["everySteps"] = 5
    given["reassignment"] |= {
        "unreachableAfterSeconds": UNREACHABLE_SECONDS,
        "reassignAfterSeconds": REASSIGN_SECONDS,
    }
    given["trainer"]["gracePeriodSeconds"] = 30
    given["preRunningDeadlineSeconds"] = 300
    given["checkpoint"]["storage"]["size"] = "2Gi"
    given |= spec
    return job
