"""Folders of runs as `spes run` leaves them, without running anything.

`write_run` tells the usual story: three peers, one is preempted, one joins, each change of
ownership with the fewest moves. Numbers follow from the round alone: it is the same every time.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from spes_operator.hub.ownership import Cause, Move, Ownership
from spes_operator.k8s.api import JsonObject
from spes_operator.names import ExpertId, ObjectKey, PeerId

START = datetime(2026, 3, 1, 14, 0, 0, tzinfo=UTC)
EXPERT_BYTES, SHARED_BYTES = 786_432, 799_232
TOKENS_PER_PEER = 10_240
RATES = {"uni-a.0": 1010.0, "uni-b.0": 990.0, "uni-c.0": 505.0, "uni-d.0": 980.0}


@dataclass(frozen=True, kw_only=True)
class Stage:
    """From round `first` on, under `epoch`, these peers own these experts."""

    first: int
    epoch: int
    owners: dict[str, str]
    reason: str = ""


DEMO = (
    Stage(first=1, epoch=1, owners={"uni-a.0": "0-2", "uni-b.0": "3-5", "uni-c.0": "6-7"}),
    Stage(
        first=9,
        epoch=2,
        owners={"uni-a.0": "0-2,6", "uni-b.0": "3-5,7"},
        reason="uni-c.0 was preempted and its slot is no longer offered.",
    ),
    Stage(
        first=13,
        epoch=3,
        owners={"uni-a.0": "0-2", "uni-b.0": "3-5", "uni-d.0": "6-7"},
        reason="uni-d.0 joined with room for 4 experts and was given its share.",
    ),
)

JOB = """\
apiVersion: spes.dev/v1alpha1
kind: SpesJob
metadata: {name: moe-tiny, namespace: research}
spec:
  model: {preset: moe-tiny}
  data: {sources: [{builtin: python-stdlib}], include: "*.py", sequenceTokens: 256}
  training:
    {maxTokens: 900000, batchTokens: 1024, optimizer: {learningRate: 0.008}, precision: FP32}
  members: {min: 2, max: 4}
  sync: {everySteps: 10, timeoutSeconds: 60}
"""

MEMBERS = """\
members:
  - {name: uni-a, slots: [{memory: 48Mi, activation: 16Mi}]}
  - {name: uni-b, slots: [{memory: 40Mi, activation: 16Mi}]}
  - {name: uni-c, slots: [{memory: 34Mi, activation: 16Mi, slowdown: 2.0}]}
  - {name: uni-d, slots: [{memory: 40Mi, activation: 16Mi}]}
"""


def write_run(run_dir: Path, *, rounds: int = 32, stages: tuple[Stage, ...] = DEMO) -> Path:
    """Write the folder of a finished run and return it."""
    (run_dir / "sync").mkdir(parents=True)
    (run_dir / "spesjob.yaml").write_text(JOB)
    (run_dir / "members.yaml").write_text(MEMBERS)
    lines = [json.dumps(entry) for entry in journal(rounds, stages)]
    (run_dir / "sync" / "journal.jsonl").write_text("\n".join(lines) + "\n")
    (run_dir / "cluster.json").write_text(json.dumps(cluster(stages)))
    (run_dir / "baselines.json").write_text('{"heldOutLoss": 2.384, "unigramLoss": 3.214}')
    (run_dir / "sample.txt").write_text("def __init__(self, name):\n    self.name = name\n")
    return run_dir


def journal(rounds: int, stages: tuple[Stage, ...] = DEMO) -> list[JsonObject]:
    """The sync server's journal of `rounds` rounds."""
    entries: list[JsonObject] = []
    now, tokens = START, 0

    def add(event: str, after: float = 0.0, /, **fields: object) -> None:
        nonlocal now
        now += timedelta(seconds=after)
        entries.append({"time": now.isoformat(), "event": event, **fields})

    for peer in stages[0].owners:
        add("joined", 0.4, peer=peer)
    add("evaluated", 2.0, version=0, loss=5.551, tokens=16384, peer="uni-a.0")
    for number in range(1, rounds + 1):
        stage = max((s for s in stages if s.first <= number), key=lambda s: s.first)
        _change(number, stage, add)
        expected = sorted(stage.owners)
        add(
            "opened",
            0.1,
            round=number,
            base=number - 1,
            epoch=stage.epoch,
            expected=expected,
            owners=stage.owners,
            deadlineSeconds=60,
        )
        peers = [_part(peer, number, stage) for peer in expected]
        slowest = max(part["tokens"] / part["tokensPerSecond"] for part in peers)
        tokens += sum(part["tokens"] for part in peers)
        add(
            "committed",
            slowest,
            round=number,
            version=number,
            epoch=stage.epoch,
            seconds=round(slowest, 3),
            globalTokens=tokens,
            modelSha256=sha256(f"version {number}".encode()).hexdigest(),
            peers=peers,
        )
        held_out = 2.05 + 3.5 * math.exp(-tokens / 160_000)
        add("evaluated", 0.2, version=number, loss=held_out, tokens=16384, peer=expected[0])
    add("complete", version=rounds, globalTokens=tokens)
    return entries


def _change(number: int, stage: Stage, add) -> None:
    """What is in the journal just before a stage begins."""
    if number == stage.first == 9:
        add("left", 3.0, round=8, peer="uni-c.0", reason="SIGTERM")
        add("plan", epoch=2, state="pending")
    if number == stage.first == 13:
        add("joined", 0.5, peer="uni-d.0")
        add("plan", epoch=3, state="pending")
    if number == 20:
        add(
            "push",
            1.0,
            round=19,
            peer="uni-b.0",
            part="ALL",
            verdict="REFUSED",
            reason="BAD_CHECKSUM",
            detail="chunk at byte 1048576 has another CRC than it says; sent again",
            bytes=3_158_528,
            seconds=0.2,
            steps=10,
            tokens=TOKENS_PER_PEER,
            loss=2.3,
        )
    if number == 24:
        problem = "2 of 3 needed, 1 has pushed; missing: uni-b.0, uni-d.0."
        add("held", 60.0, round=23, problem=problem)


def _part(peer: str, number: int, stage: Stage) -> JsonObject:
    """One peer's line of a commit; a little wave stands for noise."""
    wave = math.sin(number * 1.7 + len(peer) * ord(peer[4]))
    owned = _num_experts(stage.owners[peer])
    rate = RATES.get(peer, 800.0) * (1 + 0.04 * wave)
    slowest = min(RATES.get(other, 800.0) for other in stage.owners)
    return {
        "peer": peer,
        "experts": stage.owners[peer],
        "weight": round(1 / len(stage.owners), 6),
        "steps": 10,
        "tokens": TOKENS_PER_PEER,
        "loss": round(2.0 + 3.5 * math.exp(-number / 6) + 0.05 * wave, 4),
        "tokensPerSecond": round(rate, 1),
        "bytesUp": SHARED_BYTES + owned * EXPERT_BYTES,
        "bytesDown": SHARED_BYTES + (8 - owned) * EXPERT_BYTES,
        "waitSeconds": round(max(0.0, TOKENS_PER_PEER / slowest - TOKENS_PER_PEER / rate), 3),
    }


def _num_experts(ranges: str) -> int:
    bounds = [part.split("-") for part in filter(None, ranges.split(","))]
    return sum(int(pair[-1]) - int(pair[0]) + 1 for pair in bounds)


def _owner_of(owners: dict[str, str]) -> dict[ExpertId, PeerId]:
    return {
        ExpertId(expert): PeerId(peer)
        for peer, text in owners.items()
        for low, _, high in (part.partition("-") for part in filter(None, text.split(",")))
        for expert in range(int(low), int(high or low) + 1)
    }


def cluster(stages: tuple[Stage, ...] = DEMO) -> JsonObject:
    """The in-memory API's file: the hub's events and the ownership with its moves."""
    owners: dict[ExpertId, PeerId] = {}
    moves: list[Move] = []
    for stage in stages:
        before, owners = owners, _owner_of(stage.owners)
        moved = [expert for expert in sorted(owners) if before.get(expert) != owners[expert]]
        moves += [
            Move(
                epoch=stage.epoch,
                time=START,
                round=stage.first - 1,
                expert=expert,
                source=before.get(expert),
                target=owners[expert],
                cause=Cause.DEPARTURE if before else Cause.START,
                reason=stage.reason,
                lower_bound=len(moved),
            )
            for expert in moved
        ]
    ownership = Ownership(
        epoch=stages[-1].epoch, owners=owners, moves=tuple(moves), changed_at=START
    )
    config_map = ownership.to_config_map(ObjectKey("research", "moe-tiny"), "uid")
    config_map["metadata"]["resourceVersion"] = "1"
    objects = [
        config_map,
        _event(160, "Warning", "PodPreempted", "uni-c.0 was preempted: the node is taken away."),
        _event(208, "Normal", "MemberJoined", "uni-d joined with 1 slot for 4 experts."),
    ]
    return {
        "format": 1,
        "resourceVersion": len(objects),
        "objects": [{"object": item, "owners": {}} for item in objects],
    }


def _event(seconds: int, kind: str, reason: str, message: str) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"moe-tiny.{seconds}", "namespace": "research"},
        "type": kind,
        "reason": reason,
        "message": message,
        "eventTime": (START + timedelta(seconds=seconds)).isoformat(timespec="milliseconds"),
        "involvedObject": {"kind": "SpesJob", "namespace": "research", "name": "moe-tiny"},
    }
