#!/usr/bin/env python3
"""Writes values.schema.json and the README's tables of the chart; `--check` only compares."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from values_file import read_values
from values_schema import values_schema
from values_table import with_tables

CHART = Path(__file__).resolve().parents[2] / "helm/spes"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write what differs; with --check name it and answer 1."""
    parser = argparse.ArgumentParser(prog="hack/helm/generate.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    is_check = parser.parse_args(arguments).check
    values = read_values((CHART / "values.yaml").read_text())
    readme = CHART / "README.md"
    wanted = {
        CHART / "values.schema.json": json.dumps(values_schema(values), indent=2) + "\n",
        readme: with_tables(readme.read_text(), values),
    }
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if is_check:
            print(f"{path.relative_to(CHART.parents[1])} is stale; run hack/helm/generate.py")
        else:
            path.write_text(wanted[path])
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
