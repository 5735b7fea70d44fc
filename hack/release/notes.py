#!/usr/bin/env python3
"""What a release says: `notes.py v0.2.0` prints that version's part of CHANGELOG.md.

A tag is a release only if everything in the repository has its version; so this also refuses one
that pyproject.toml, the chart or the changelog does not know.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the notes, or what is wrong; answers 2 then."""
    parser = argparse.ArgumentParser(prog="hack/release/notes.py", description=__doc__)
    parser.add_argument("tag", help="of git, for example v0.2.0")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    version = options.tag.removeprefix("v")
    problems = list(_problems(options.root, options.tag))
    for problem in problems:
        print(f"notes.py: {problem}", file=sys.stderr)
    if problems:
        return 2
    print(notes(options.root, version))
    return 0


def _problems(root: Path, tag: str) -> Iterator[str]:
    version = tag.removeprefix("v")
    if not re.fullmatch(r"v\d+\.\d+\.\d+(-rc\.\d+)?", tag):
        yield f"a release's tag must be v1.2.3 or v1.2.3-rc.1 (got {tag!r})"
    for name, found in versions(root).items():
        if found != version:
            yield f"{name} must be {version}, as the tag says (got {found}); change it first"
    if not notes(root, version):
        yield f"CHANGELOG.md must have a section [{version}]; rename [Unreleased] and begin anew"


def versions(root: Path) -> dict[str, str]:
    """Where a version is written -> the version there."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    chart = (root / "helm/spes/Chart.yaml").read_text()
    found = {"pyproject.toml project.version": str(project)}
    for field in ("version", "appVersion"):
        match = re.search(rf'^{field}: "?([^"\n]+)"?$', chart, re.M)
        found[f"helm/spes/Chart.yaml {field}"] = match[1] if match else "none"
    return found


def notes(root: Path, version: str) -> str:
    """That version's part of the changelog; empty: it has none."""
    text = (root / "CHANGELOG.md").read_text()
    parts = re.split(r"^## \[([^\]]+)\].*\n", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True)).get(version, "").strip()


if __name__ == "__main__":
    sys.exit(main())
