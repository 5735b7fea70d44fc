"""The last words of a run: its summary in a few lines for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any


def closing_words(summary: Mapping[str, Any], folder: Path) -> str:
    """Lines about a run.

    Args:
        summary: Of `summary.json`.
        folder: Where the run lies.
    """
    experts = summary["experts"]
    lines = [
        f"{_many(summary['rounds'], 'round')}, {summary['tokens']:,} tokens in "
        f"{summary['seconds']:.0f} s",
        *_losses(summary),
        f"experts changed by training: {experts['trained']} of {experts['total']}",
        *_moves(summary["moves"]),
        f"model sha256 {summary['modelSha256']}",
        f"report       {folder / 'report.html'}",
        f"summary      {folder / 'summary.json'}",
    ]
    if summary["export"]:
        lines.append(f"checkpoint   {folder / summary['export']} (Hugging Face)")
    if (folder / "sample.txt").exists():
        lines.append(f"sample       {folder / 'sample.txt'}")
    return "\n".join(lines) + "\n"


def _losses(summary: Mapping[str, Any]) -> list[str]:
    """Held-out losses, each beside what it is compared with; unknown ones are left out."""
    held_out = summary["heldOutLoss"]
    known = {
        "before training": held_out["first"],
        "after it": held_out["last"],
        "one peer alone": summary["aloneLoss"],
        "unigram": summary["unigramLoss"],
        "uniform": held_out["uniform"],
    }
    said = [f"{name} {loss:.3f}" for name, loss in known.items() if loss is not None]
    return [f"held-out loss, nats per token: {', '.join(said)}"] if said else []


def _moves(moves: list[Mapping[str, Any]]) -> list[str]:
    """One line per change of ownership: how many experts moved, and how many had to."""
    lines = []
    for number, group in groupby(moves, lambda one: one["round"]):
        batch = list(group)
        reasons = dict.fromkeys(one["reason"] for one in batch)
        lines.append(
            f"round {number}: {_many(len(batch), 'expert')} moved (at least "
            f"{batch[0]['lowerBound']} had to): {'; '.join(reasons)}"
        )
    return lines


def _many(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
