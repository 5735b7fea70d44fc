"""Lets the folder be run: `python hack/flows --help`."""

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    root = Path(__file__).resolve().parents[2]
    sys.path[:1] = [str(root / "hack"), str(root / "tests")]  # the tests' bed of clusters
    sys.exit(importlib.import_module("flows.play").main())
