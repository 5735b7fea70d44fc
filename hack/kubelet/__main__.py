"""Lets the folder be run: `python hack/kubelet --help`."""

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # of a folder, Python puts in itself
    sys.exit(importlib.import_module("kubelet.program").main())
