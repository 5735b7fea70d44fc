"""Everything a report knows of a run, read from its folder.

Whatever is missing or broken is named in `gaps` and left out; nothing here fails but for a folder
that is no run at all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from spes_api.job import SpesJob
from spes_api.members import MembersFile

from spes_operator.display.palette import Mark, marks
from spes_operator.errors import ConfigError
from spes_operator.report.cluster import Cluster, Moved, read_cluster
from spes_operator.report.journal import Journal, Opened, read_journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Baselines:
    """Held-out losses to compare with, in nats per token; None: not known."""

    uniform: float | None = None
    """Every token equally likely."""
    unigram: float | None = None
    """Every token as likely as in the training text, whatever came before it."""
    alone: float | None = None
    """One peer trained by itself with its own share of the tokens."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One run."""

    name: str
    job: SpesJob | None
    journal: Journal
    cluster: Cluster
    baselines: Baselines
    members: tuple[str, ...]
    """Peers in the order of the members file."""
    sample: str
    """Text that the final model wrote; empty: none."""
    exported: bool
    gaps: tuple[str, ...]
    """What is missing, in sentences."""

    @cached_property
    def peers(self) -> tuple[str, ...]:
        """Every peer, those of the members file first: the order of letters and colours."""
        seen = [peer for opened in self.journal.opened for peer in opened.expected]
        pushed = [peer.peer for commit in self.journal.commits for peer in commit.peers]
        return tuple(dict.fromkeys((*self.members, *seen, *pushed)))

    @cached_property
    def marks(self) -> Mapping[str, Mark]:
        """Letter and colour of every peer."""
        return marks(self.peers)

    @cached_property
    def ownership(self) -> Mapping[int, Mapping[int, str]]:
        """Round -> expert -> owner, as the round was last opened."""
        return {opened.round: opened.owners for opened in self.journal.opened}

    @cached_property
    def num_experts(self) -> int:
        """How many experts the model has, as far as is known."""
        seen = max((max(owners, default=-1) for owners in self.ownership.values()), default=-1)
        return max(seen + 1, self.job.spec.model.resolve().num_experts if self.job else 0)

    @cached_property
    def moves(self) -> tuple[Moved, ...]:
        """Every change of an expert's owner: as the hub told it, else as the journal shows it."""
        if not self.cluster.moves:
            return tuple(_shown_moves(self.journal.opened))
        return tuple(_from_its_round(move, self.journal.opened) for move in self.cluster.moves)


def load_record(run_dir: Path) -> RunRecord:
    """Read the folder.

    Raises:
        ConfigError: The folder holds nothing of a run.
    """
    if not (run_dir / "spesjob.yaml").exists() and not (run_dir / "sync").exists():
        raise ConfigError(
            f"{run_dir} is not the folder of a run (got neither spesjob.yaml nor sync/ in it); "
            "give the folder that `spes run --output` wrote"
        )
    gaps: list[str] = []
    job = _job(run_dir, gaps)
    name = job.metadata.name if job else run_dir.name
    cluster = read_cluster(_json(run_dir / "cluster.json", gaps, need="events"), job=name)
    journal = _journal(run_dir, gaps)
    sample = run_dir / "sample.txt"
    return RunRecord(
        name=name,
        job=job,
        journal=journal,
        cluster=cluster,
        baselines=_baselines(run_dir, job),
        members=_members(run_dir, gaps),
        sample=sample.read_text(encoding="utf-8", errors="replace") if sample.exists() else "",
        exported=any((run_dir / "export").glob("*.safetensors")),
        gaps=tuple(gaps),
    )


def _job(run_dir: Path, gaps: list[str]) -> SpesJob | None:
    try:
        text = (run_dir / "spesjob.yaml").read_text(encoding="utf-8")
        return SpesJob.model_validate(yaml.safe_load(text))
    except FileNotFoundError:
        gaps.append("spesjob.yaml is missing: preset, seed and targets are not known.")
    except (OSError, ValueError, yaml.YAMLError) as error:
        gaps.append(f"spesjob.yaml cannot be read ({type(error).__name__}).")
    return None


def _journal(run_dir: Path, gaps: list[str]) -> Journal:
    try:
        with (run_dir / "sync" / "journal.jsonl").open(encoding="utf-8", errors="replace") as lines:
            journal = read_journal(lines)
    except OSError as error:
        gaps.append(f"sync/journal.jsonl cannot be read ({type(error).__name__}): no rounds.")
        return Journal()
    if journal.num_unreadable:
        gaps.append(f"{journal.num_unreadable} line(s) of the journal are torn and left out.")
    if not journal.commits:
        gaps.append("No round was committed.")
    elif not journal.complete:
        gaps.append(f"The run did not finish: it ended after round {journal.commits[-1].round}.")
    return journal


def _json(path: Path, gaps: list[str], *, need: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        gaps.append(f"{path.name} is missing: its {need} are not shown.")
    except (OSError, ValueError) as error:
        gaps.append(f"{path.name} cannot be read ({type(error).__name__}): no {need}.")
    return None


def _members(run_dir: Path, gaps: list[str]) -> tuple[str, ...]:
    try:
        text = (run_dir / "members.yaml").read_text(encoding="utf-8")
        members = MembersFile.model_validate(yaml.safe_load(text)).members
        return tuple(peer for member in members for peer, _ in member.peers)
    except FileNotFoundError:
        gaps.append("members.yaml is missing.")
    except (OSError, ValueError, yaml.YAMLError) as error:
        gaps.append(f"members.yaml cannot be read ({type(error).__name__}).")
    return ()


def _baselines(run_dir: Path, job: SpesJob | None) -> Baselines:
    """Uniform follows from the vocabulary; the others are in baselines.json, if measured."""
    uniform = math.log(job.spec.model.resolve().vocabulary) if job else None
    measured = run_dir / "baselines.json"
    found = _json(measured, [], need="losses") if measured.exists() else None
    known = found if isinstance(found, dict) else {}
    return Baselines(
        uniform=uniform, unigram=_loss(known, "unigramLoss"), alone=_loss(known, "heldOutLoss")
    )


def _loss(known: Mapping[str, Any], key: str) -> float | None:
    value = known.get(key)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _from_its_round(move: Moved, opened: Iterable[Opened]) -> Moved:
    """The hub names the round in which it decided; the new owner trains from the next opening."""
    rounds = (seen.round for seen in opened if seen.epoch >= move.epoch)
    return replace(move, round=next(rounds, move.round))


def _shown_moves(opened: Iterable[Opened]) -> Iterator[Moved]:
    for before, now in pairwise(opened):
        for expert in sorted({*before.owners, *now.owners}):
            source, target = before.owners.get(expert), now.owners.get(expert)
            if source != target:
                yield Moved(
                    round=now.round,
                    epoch=now.epoch,
                    expert=expert,
                    source=source,
                    target=target,
                    reason="",
                    lower_bound=None,
                )
