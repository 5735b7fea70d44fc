#!/usr/bin/env python3
"""Writes docs/reference/cli.md and fields.md; `--check` only compares."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cli_page import cli_page
from fields_page import fields_page

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write what differs; with --check name it and answer 1."""
    parser = argparse.ArgumentParser(prog="hack/docs/generate.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    is_check = parser.parse_args(arguments).check
    reference = ROOT / "docs/reference"
    wanted = {reference / "cli.md": cli_page(), reference / "fields.md": fields_page()}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if is_check:
            print(f"{path.relative_to(ROOT)} is stale; run hack/docs/generate.py")
        else:
            path.write_text(wanted[path])
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
