"""The corpus of SpesJobs in tests/unit/api/corpus.yaml, each case written out."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A job, and how it must be judged."""

    name: str
    job: dict[str, Any]
    old: dict[str, Any] | None
    """The job that it replaces; None: it is new."""
    valid: bool
    rule: str
    field: str


def corpus() -> list[Case]:
    """All cases."""
    base = yaml.safe_load((_ROOT / "examples/moe-tiny.yaml").read_text())
    lines = yaml.safe_load((_ROOT / "tests/unit/api/corpus.yaml").read_text())
    return [_case(line, base) for line in lines]


def _case(line: dict[str, Any], base: dict[str, Any]) -> Case:
    job = copy.deepcopy(base)
    for path in line.get("remove", []):
        parent, key = _place(job, path)
        del parent[key]
    for path, value in line.get("set", {}).items():
        parent, key = _place(job, path)
        parent[key] = value
    return Case(
        name=line["name"],
        job=job,
        old=base if line.get("update") else None,
        valid=line["valid"],
        rule=line.get("rule", ""),
        field=line.get("field", ""),
    )


def _place(job: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    *parents, key = path.split(".")
    for parent in parents:
        job = job[parent]
    return job, key
