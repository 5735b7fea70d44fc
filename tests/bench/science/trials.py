"""What one run left: read from its folder, kept as JSON, read back for the page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Self

from spes_api.job import SpesJobSpec
from spes_operator.placement.costs import peer_costs
from spes_operator.report.journal import Committed, read_journal

# Decimals of a loss that are kept: more than seeds can tell apart.
_PLACES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerUse:
    """What one peer sent and received in a round, and held.

    Of the rounds from the second on: in the first, one peer sends the first weights besides, and
    nobody fetches anything.
    """

    peer: str
    bytes_up: float
    bytes_down: float
    state_bytes: int
    """Weights, gradients and moments, by the paper's accounting."""
    peak_bytes: int | None
    """Resident memory of its process at the highest; None: not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One arm with one seed."""

    arm: str
    seed: int
    commit: str
    versions: Mapping[str, str]
    spec: Mapping[str, Any]
    data: Mapping[str, Any]
    rounds: int
    tokens: int
    curve: tuple[tuple[int, float], ...]
    """Tokens of all peers, and the held-out loss of the model at that point, nats per token."""
    model_sha256: str
    cpu_seconds: float
    """Of every process of the run, its start and its report included."""
    peers: tuple[PeerUse, ...]

    @property
    def loss(self) -> float:
        """Held-out loss at the end."""
        return self.curve[-1][1]

    @property
    def learning_rate(self) -> float:
        """At the peak of the schedule."""
        return float(self.spec["training"]["optimizer"]["learningRate"])

    def to_json(self) -> str:
        """As the file keeps it."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        kept = json.loads(text)
        kept["curve"] = tuple((tokens, loss) for tokens, loss in kept["curve"])
        kept["peers"] = tuple(PeerUse(**peer) for peer in kept["peers"])
        return cls(**kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the run's folder does not know."""

    commit: str
    cpu_seconds: float
    peak_bytes: Mapping[str, int]
    """By peer."""


def read_trial(arm: str, job: Mapping[str, Any], folder: Path, measured: Measured) -> Trial:
    """Read the folder of a finished run."""
    with (folder / "sync" / "journal.jsonl").open(encoding="utf-8") as lines:
        journal = read_journal(lines)
    tokens = {commit.round: commit.tokens for commit in journal.commits}
    summary = json.loads((folder / "summary.json").read_bytes())
    data = json.loads(min(folder.glob("members/*/data.json")).read_bytes())
    return Trial(
        arm=arm,
        seed=summary["seed"],
        commit=measured.commit,
        versions=summary["versions"],
        spec=job["spec"],
        data=data,
        rounds=summary["rounds"],
        tokens=summary["tokens"],
        curve=tuple(
            (tokens.get(seen.version, 0), round(seen.loss, _PLACES)) for seen in journal.evaluations
        ),
        model_sha256=summary["modelSha256"],
        cpu_seconds=round(measured.cpu_seconds, 1),
        peers=_peers(journal.commits, SpesJobSpec.model_validate(job["spec"]), measured),
    )


def _peers(
    commits: tuple[Committed, ...], spec: SpesJobSpec, measured: Measured
) -> tuple[PeerUse, ...]:
    replicated, num_experts = spec.algorithm.replicated, spec.model.resolve().num_experts
    used = []
    for part in commits[-1].peers:
        rounds = [each for commit in commits[1:] for each in commit.peers if each.peer == part.peer]
        num_owned = num_experts if replicated else len(part.experts)
        costs = peer_costs(spec, num_experts=num_owned, activation_bytes=0)
        used.append(
            PeerUse(
                peer=part.peer,
                bytes_up=mean(each.bytes_up for each in rounds),
                bytes_down=mean(each.bytes_down for each in rounds),
                state_bytes=costs.state_bytes,
                peak_bytes=measured.peak_bytes.get(part.peer),
            )
        )
    return tuple(used)
