"""Raw results as JSON: one file for each benchmark, kept in tests/bench/results/."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def save(name: str, result: dict[str, Any]) -> None:
    """Keep what a benchmark measured, in place of what it measured before."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    sys.stdout.write(f"written to {path}\n")


def load(name: str) -> dict[str, Any]:
    """What a benchmark measured last."""
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_bytes())
    return result
