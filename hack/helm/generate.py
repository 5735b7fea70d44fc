#!/usr/bin/env python3
"""Writes values.schema.json and the README's tables of the chart; `--check` only compares."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# A program finds the modules beside its folder too.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from generated_files import ROOT, write_or_check
from values_file import read_values
from values_schema import values_schema
from values_table import with_tables

CHART = ROOT / "helm/spes"


def files() -> Mapping[Path, str]:
    """Schema and README as the chart's values say."""
    values = read_values((CHART / "values.yaml").read_text())
    readme = CHART / "README.md"
    return {
        CHART / "values.schema.json": json.dumps(values_schema(values), indent=2) + "\n",
        readme: with_tables(readme.read_text(), values),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write what differs; with --check name it and answer 1."""
    return write_or_check("hack/helm/generate.py", __doc__, files, arguments)


if __name__ == "__main__":
    sys.exit(main())
