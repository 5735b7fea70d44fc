"""`summary.json`: the run in numbers, for scripts. Pure."""

from __future__ import annotations

import math
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from spes_operator.report.journal import PeerRound
from spes_operator.report.record import RunRecord


def summarise(run: RunRecord, versions: dict[str, str]) -> dict[str, Any]:
    """Return the summary; a number that is not known is null."""
    journal = run.journal
    last = journal.commits[-1] if journal.commits else None
    losses = [seen.loss for seen in journal.evaluations]
    return {
        "job": run.name,
        "preset": run.job.spec.model.preset if run.job else None,
        "seed": run.job.spec.training.seed if run.job else None,
        "rounds": last.round if last else 0,
        "tokens": last.tokens if last else 0,
        "seconds": seconds(run),
        "heldOutLoss": {
            "first": _number(losses[0]) if losses else None,
            "last": _number(losses[-1]) if losses else None,
            "uniform": run.baselines.uniform,
        },
        "unigramLoss": run.baselines.unigram,
        "aloneLoss": run.baselines.alone,
        "experts": _experts(run),
        "epoch": last.epoch if last else 0,
        "moves": [
            {
                "round": move.round,
                "expert": move.expert,
                "from": move.source,
                "to": move.target,
                "reason": move.reason,
                "lowerBound": move.lower_bound,
            }
            for move in run.moves
        ],
        "peers": [_peer(peer, rounds) for peer, rounds in rounds_by_peer(run).items()],
        "refusals": len(journal.refusals),
        "modelSha256": last.model_sha256 if last else None,
        "export": "export" if run.exported else None,
        "versions": versions,
    }


def seconds(run: RunRecord) -> float:
    """Return the time from the journal's first line to its last."""
    start, end = run.journal.start, run.journal.end
    return round((end - start).total_seconds(), 3) if start and end else 0.0


def rounds_by_peer(run: RunRecord) -> dict[str, list[PeerRound]]:
    """Return each peer's part of the committed rounds; a peer that took part in none has none."""
    rounds: dict[str, list[PeerRound]] = {peer: [] for peer in run.peers}
    for commit in run.journal.commits:
        for part in commit.peers:
            rounds[part.peer].append(part)
    return rounds


def mean_rate(rounds: list[PeerRound]) -> float:
    """Return tokens per second of training, each round weighted by its time."""
    busy = sum(part.tokens / part.tokens_per_second for part in rounds if part.tokens_per_second)
    return sum(part.tokens for part in rounds if part.tokens_per_second) / busy if busy else 0.0


def installed_versions() -> dict[str, str]:
    """Return the versions of python and, where installed, of spes and torch."""
    found = {"python": platform.python_version()}
    for package in ("spes", "torch"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _experts(run: RunRecord) -> dict[str, int]:
    """How many experts there are, and how many a committed push of their owner changed."""
    parts = [part for commit in run.journal.commits for part in commit.peers]
    if run.job and run.job.spec.algorithm.replicated:
        trained = run.num_experts if parts else 0
    else:
        trained = len({expert for part in parts for expert in part.experts})
    return {"total": run.num_experts, "trained": trained}


def _peer(peer: str, rounds: list[PeerRound]) -> dict[str, Any]:
    return {
        "peer": peer,
        "rounds": len(rounds),
        "tokens": sum(part.tokens for part in rounds),
        "tokensPerSecond": round(mean_rate(rounds), 1),
        "bytesUp": sum(part.bytes_up for part in rounds),
        "bytesDown": sum(part.bytes_down for part in rounds),
        "waitSeconds": round(sum(part.wait_seconds for part in rounds), 3),
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
