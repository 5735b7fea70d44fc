"""A SpesJob over a model so small that most time goes into starting its trainers, and its data."""

import random
from pathlib import Path
from typing import Any

from spes_operator.k8s.api import JsonObject

_MODEL = {
    "width": 32,
    "numLayers": 1,
    "numHeads": 2,
    "expertWidth": 32,
    "numExperts": 4,
    "numExpertsPerToken": 2,
    "vocabulary": 256,
    "initStd": 0.06,
}
UNREACHABLE_SECONDS, REASSIGN_SECONDS = 6, 12


def make_job(namespace: str, name: str, **spec: Any) -> JsonObject:
    """A SpesJob over a model so small that a round takes a second; it does not end by itself."""
    given = {
        "model": {"config": _MODEL},
        "data": {"sources": [{"dataset": {"name": "words"}}], "sequenceTokens": 32},
        "training": {
            "maxTokens": 10**9,
            "batchTokens": 64,
            "optimizer": {"learningRate": 0.01},
            "precision": "FP32",
            "evaluation": {"everyRounds": 5, "tokens": 512},
        },
        "members": {"min": 1},
        "sync": {"everySteps": 100_000, "everySeconds": 1, "timeoutSeconds": 30},
        "reassignment": {
            "unreachableAfterSeconds": UNREACHABLE_SECONDS,
            "reassignAfterSeconds": REASSIGN_SECONDS,
            "cooldownAfterHubRestartSeconds": 3,
        },
        "trainer": {"gracePeriodSeconds": 20},
    }
    return {
        "apiVersion": "spes.dev/v1alpha1",
        "kind": "SpesJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": given | spec,
    }


def owners(job: JsonObject) -> set[str]:
    """Peers that own experts, as the SpesJob says."""
    return {row["peer"] for row in job.get("status", {}).get("ownership", ()) if row["experts"]}


def epoch(job: JsonObject) -> int:
    """Of the job's ownership, as the SpesJob says."""
    return int(job["status"]["ownershipEpoch"])


def write_words(folder: Path) -> Path:
    """The dataset `words`, in a new folder; answers it."""
    folder.mkdir()
    chance = random.Random(0)
    for number in range(40):
        text = " ".join(chance.choice(["round", "expert", "peer"]) for _ in range(150))
        (folder / f"{number}.txt").write_text(text)
    return folder
