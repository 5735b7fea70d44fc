"""What follows a finished run: text that the model writes, and losses to compare its own with.

The losses go to `baselines.json`. Nothing here touches the files of the run itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from spes_api.job import SpesJob

from spes_operator.local.machine import TRAINER, Machine, run_tool
from spes_operator.local.process import Command
from spes_operator.local.process_log import last_line
from spes_operator.local.rundir import RunDir, write_model
from spes_operator.report.journal import read_journal

_SAMPLE_TOKENS = 400
_LOOK_SECONDS = 5.0
_SAMPLE_LIMIT = timedelta(minutes=5)


async def write_sample(folder: RunDir, machine: Machine) -> None:
    """Let the final model write `sample.txt`.

    Raises:
        ToolError: The trainer failed.
    """
    draft = folder.sample.with_name("sample.txt.new")
    command = Command(
        arguments=(TRAINER, "generate", str(folder.sync), "--tokens", str(_SAMPLE_TOKENS)),
        environment=machine.with_threads(1),
        directory=folder.root,
        log=folder.logs / "generate.log",
        output=draft,
    )
    await run_tool(command, _SAMPLE_LIMIT)
    draft.replace(folder.sample)


def write_unigram(folder: RunDir) -> None:
    """Note what knowing only how often each token occurs would give; every peer has counted it."""
    for path in sorted(folder.root.glob("members/*/data.json")):
        _note(folder, unigramLoss=json.loads(path.read_bytes())["unigramLoss"])


async def compare_alone(
    job: SpesJob, folder: RunDir, machine: Machine, limit: timedelta, show: Callable[[str], None]
) -> None:
    """Train one peer alone on the most tokens that any peer had, and note its held-out loss.

    Args:
        job: Of the run.
        folder: Of the run.
        machine: Where it trains.
        limit: For how long at most.
        show: Is told now and then how far it is.

    Raises:
        ToolError: The trainer failed, or took longer than `limit`.
    """
    work, recipe = folder.root / "alone", folder.root / "alone.yaml"
    tokens = most_tokens_of_a_peer(folder)
    alone = alone_job(job, tokens)
    write_model(recipe, alone)
    options = ("--dir", str(work), "--alone", str(recipe), "--data-root", str(folder.data))
    command = Command(
        arguments=(TRAINER, "train", *options),
        environment=machine.with_threads(1),
        directory=work,
        log=folder.logs / "alone.log",
    )
    showing = asyncio.create_task(_follow(command.log, f"one peer alone, {tokens:,} tokens", show))
    try:
        await run_tool(command, limit)
    finally:
        showing.cancel()
    result = json.loads((work / "summary.json").read_bytes())
    _note(folder, heldOutLoss=result["heldOutLoss"]["last"], tokens=tokens)


async def _follow(log: Path, what: str, show: Callable[[str], None]) -> None:
    """Show every new last line of a log, for ever."""
    told = last_line(log)  # of an earlier attempt
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        if (line := last_line(log)) != told:
            show(f"{what}: {' '.join(line.split())}")
            told = line


def _note(folder: RunDir, **found: float) -> None:
    """Add to `baselines.json`."""
    path = folder.root / "baselines.json"
    known = json.loads(path.read_bytes()) if path.exists() else {}
    path.write_text(json.dumps({**known, **found}, indent=1) + "\n", encoding="utf-8")


def alone_job(job: SpesJob, tokens: int) -> SpesJob:
    """The job with `tokens` for all, and a schedule of the same shape."""
    spec, share = job.spec, tokens / job.spec.training.max_tokens
    warmup = max(1, round(spec.training.warmup_tokens * share))
    schedule = spec.training.schedule.model_copy(update={"warmup_tokens": warmup})
    training = spec.training.model_copy(update={"max_tokens": tokens, "schedule": schedule})
    return job.model_copy(update={"spec": spec.model_copy(update={"training": training})})


def most_tokens_of_a_peer(folder: RunDir) -> int:
    """Tokens of the peer that trained on most."""
    with (folder.sync / "journal.jsonl").open(encoding="utf-8", errors="replace") as lines:
        journal = read_journal(lines)
    tokens: dict[str, int] = {}
    for commit in journal.commits:
        for peer in commit.peers:
            tokens[peer.peer] = tokens.get(peer.peer, 0) + peer.tokens
    return max(tokens.values(), default=0)
