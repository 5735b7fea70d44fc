"""What is compared: every arm, and the SpesJob and members file that make it. Pure.

All arms train on the same tokens in all, in the same number of optimizer steps, with the same
tokens in a step of all peers together: N peers share out a batch that one peer has alone. `alone`
is the exception and says so: one of four peers with its quarter of the tokens and nobody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from string import ascii_lowercase
from typing import Any

from spes_api.elasticity import CodecName

SEEDS = (0, 1, 2)
NUM_EXPERTS = 8
# Tokens of an optimizer step of all peers together.
STEP_TOKENS = 2048
SEQUENCE_TOKENS = 128
# H: steps of a round, where an arm says nothing else.
EVERY_STEPS = 5
# Most tokens that are in a peer's memory at once, whatever its batch.
MICRO_BATCH_TOKENS = 512
# Held-out tokens of an evaluation, and optimizer steps from one to the next.
HELD_OUT_TOKENS, EVALUATION_STEPS = 16_384, 20
# Shares of the run: the schedule's warm-up and the merging, as the released 1B configuration has
# them in 50 billion tokens of 2 million a step (2,000 and 12,500 of 23,842 steps).
WARMUP_SHARE, MERGING_SHARE = 2_000 / 23_842, 12_500 / 23_842
# Chosen by the pilot.
LEARNING_RATE = 0.004


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """How long a run is, and with which seeds and arms it is made."""

    num_steps: int
    seeds: tuple[int, ...]
    arms: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to train, made once with every seed."""

    name: str
    label: str
    algorithm: str
    num_peers: int = 4
    every_steps: int = EVERY_STEPS
    batch_tokens: int = 0
    """Per peer and step; 0: its share of `STEP_TOKENS`."""
    codec: CodecName = "FP32"
    """In both directions."""
    merge_alpha: float = 0.0
    """0: experts are not merged."""
    seeds: tuple[int, ...] = field(default=())
    """Of an arm that is not made with all of them; none: all."""

    @property
    def peer_batch_tokens(self) -> int:
        """Tokens of a peer's step."""
        return self.batch_tokens or STEP_TOKENS // self.num_peers


def _spes(name: str, label: str, **changes: Any) -> Arm:
    return Arm(name=name, label=label, algorithm="SPES", **changes)


ARMS = {
    arm.name: arm
    for arm in (
        Arm(name="centralised", label="Centralised", algorithm="Centralised", num_peers=1),
        _spes("spes", "SPES"),
        _spes("spes-merge", "SPES, merging", merge_alpha=0.1),
        Arm(name="fedavg", label="FedAvg", algorithm="FedAvg"),
        Arm(name="diloco", label="DiLoCo", algorithm="DiLoCo"),
        _spes("spes-h20", "SPES, H = 20", every_steps=20),
        _spes("spes-h40", "SPES, H = 40", every_steps=40),
        _spes("spes-int8", "SPES, INT8", codec="INT8"),
        _spes("spes-n2", "SPES, 2 peers", num_peers=2),
        _spes("spes-n8", "SPES, 8 peers", num_peers=8),
        Arm(
            name="alone",
            label="one peer alone",
            algorithm="Centralised",
            num_peers=1,
            batch_tokens=STEP_TOKENS // 4,
        ),
        _spes("spes-again", "SPES, seed 0 again", seeds=(0,)),
    )
}
# What was tried once at each rate, with a seed that no other run has.
PILOT = ("centralised", "spes", "fedavg", "diloco")
PILOT_RATES = (0.004, 0.008)
PILOT_SEED, PILOT_STEPS, PILOT_EVERY_STEPS = 100, 120, 10

FULL = Length(num_steps=80, seeds=SEEDS, arms=tuple(ARMS))
QUICK = Length(
    num_steps=40,
    seeds=(0,),
    arms=(
        *("centralised", "spes", "spes-merge", "fedavg", "diloco"),
        *("spes-h20", "spes-int8", "spes-n2"),
    ),
)


def job_of(arm: Arm, *, seed: int, num_steps: int, learning_rate: float) -> dict[str, Any]:
    """The SpesJob of one run, as a person would write it.

    Nothing in it depends on time: rounds end by steps and wait for everyone, and no expert moves.
    So the same job gives the same model, bit for bit, however busy the machine is.
    """
    return {
        "apiVersion": "spes.dev/v1alpha1",
        "kind": "SpesJob",
        "metadata": {"name": f"{arm.name}-{seed}", "namespace": "science"},
        "spec": {
            "model": {"preset": "moe-tiny"},
            "data": {
                "sources": [{"builtin": "python-stdlib"}],
                "include": "*.py",
                "sequenceTokens": SEQUENCE_TOKENS,
            },
            "training": _training(arm, num_steps)
            | {"optimizer": {"learningRate": learning_rate}, "seed": seed},
            "algorithm": _algorithm(arm, num_steps),
            "members": {"min": arm.num_peers, "max": arm.num_peers},
            "experts": {"maxPerPeer": NUM_EXPERTS // arm.num_peers},
            "sync": {
                "everySteps": arm.every_steps,
                "timeoutSeconds": 3600,
                "quorum": 1.0,
                "compression": {"uplink": arm.codec, "downlink": arm.codec},
            },
            "reassignment": {
                "mode": "Manual",
                "unreachableAfterSeconds": 1200,
                "reassignAfterSeconds": 2400,
            },
            "checkpoint": {"everyRounds": 1000, "keepLast": 1},
        },
    }


def _training(arm: Arm, num_steps: int) -> dict[str, Any]:
    max_tokens = num_steps * arm.peer_batch_tokens * arm.num_peers
    return {
        "maxTokens": max_tokens,
        "batchTokens": arm.peer_batch_tokens,
        "microBatchTokens": min(arm.peer_batch_tokens, MICRO_BATCH_TOKENS),
        "schedule": {"warmupTokens": round(max_tokens * WARMUP_SHARE)},
        "precision": "FP32",
        "evaluation": {
            "everyRounds": max(1, EVALUATION_STEPS // arm.every_steps),
            "tokens": HELD_OUT_TOKENS,
        },
    }


def _algorithm(arm: Arm, num_steps: int) -> dict[str, Any]:
    if not arm.merge_alpha:
        return {"name": arm.algorithm}
    warmup_rounds = round(num_steps // arm.every_steps * MERGING_SHARE)
    merge = {"alpha": arm.merge_alpha, "everyRounds": 1, "warmupRounds": warmup_rounds}
    return {"name": arm.algorithm, "merge": merge}


def members_of(arm: Arm) -> dict[str, Any]:
    """The members file: as many equal members as the arm has peers, with room for every expert."""
    names = [f"peer-{ascii_lowercase[number]}" for number in range(arm.num_peers)]
    members: list[Mapping[str, Any]] = [
        {"name": name, "slots": [{"memory": "1Gi"}]} for name in names
    ]
    return {"members": members}
