#!/usr/bin/env python3
"""Writes docs/reference/cli.md and fields.md; `--check` only compares."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# A program finds the modules beside its folder too.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cli_page import cli_page
from fields_page import fields_page
from generated_files import ROOT, write_or_check

REFERENCE = ROOT / "docs/reference"


def pages() -> Mapping[Path, str]:
    """Each page as its sources say."""
    return {REFERENCE / "cli.md": cli_page(), REFERENCE / "fields.md": fields_page()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write what differs; with --check name it and answer 1."""
    return write_or_check("hack/docs/generate.py", __doc__, pages, arguments)


if __name__ == "__main__":
    sys.exit(main())
