"""The SpesJob of the end-to-end tests: `examples/moe-tiny.yaml`, on the members' own text.

Each trainer is two processes.
"""

import copy
import math
from pathlib import Path
from typing import Any

import yaml
from spes_operator.k8s.api import JsonObject

NAME = "moe-tiny"
UNREACHABLE_SECONDS, REASSIGN_SECONDS = 15, 45
# Nats per byte of a model that knows nothing.
UNTRAINED_LOSS = math.log(256)
_EXAMPLE: JsonObject = yaml.safe_load(
    (Path(__file__).parents[2] / "examples/moe-tiny.yaml").read_text()
)
_LONG = 10**8


def make_job(name: str = NAME, **spec: Any) -> JsonObject:
    """The example with what a test changes; it does not end by itself."""
    job = copy.deepcopy(_EXAMPLE)
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
    given["trainer"] |= {"gracePeriodSeconds": 30, "numProcPerNode": 2}
    given["preRunningDeadlineSeconds"] = 300
    given["checkpoint"]["storage"]["size"] = "2Gi"
    given |= spec
    return job


def load_and_run(folder: Path) -> Any:
    """Logits of the exported model, as transformers loads and runs it."""
    import torch  # these take seconds, which every other run of tests would wait for
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        return model(torch.arange(32).unsqueeze(0)).logits
