#!/usr/bin/env python3
"""Builds the helm that tests render the chart with, from the Go module pinned beside this file.

It is kept in the user's cache, so a second call does nothing. A binary named by SPES_HELM is used
as it is instead. Without Go it says what is skipped; in CI (CI=true) that is a failure. Standard
library only: it also runs before the virtual environment exists.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = "helm.sh/helm/v3/cmd/helm"


def version(module: str = "helm.sh/helm/v3") -> str:
    """The version of a module that go.mod pins, for example v3.19.5."""
    pinned = re.search(rf"^\s*{module} (v\S+)", (HERE / "go.mod").read_text(), re.MULTILINE)
    assert pinned is not None, f"go.mod pins no {module}"
    return pinned[1]


def binary(environment: Mapping[str, str]) -> Path:
    """Where helm is, or will be once it is built."""
    if given := environment.get("SPES_HELM"):
        return Path(given)
    cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "spes" / "helm" / version() / "helm"


def build(target: Path) -> None:
    """Compile it; it appears at `target` whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".helm.{os.getpid()}")
    command = ["go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false"]
    command += ["-ldflags", _linker_flags(), "-o", str(draft), PACKAGE]
    try:
        subprocess.run(  # noqa: S603 - the arguments are constants
            command, cwd=HERE, env={**os.environ, "CGO_ENABLED": "0"}, check=True
        )
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _linker_flags() -> str:
    """Strip symbols; say helm's version, and the Kubernetes it renders for, as its release does."""
    minor = version("k8s.io/client-go").split(".")[1]
    known = {"internal/version.version": version()}
    for package in ("pkg/lint/rules", "pkg/chartutil"):
        known |= {f"{package}.k8sVersionMajor": "1", f"{package}.k8sVersionMinor": minor}
    return " ".join(["-s", "-w", *(f"-X helm.sh/helm/v3/{k}={v}" for k, v in known.items())])


def main(arguments: Sequence[str] | None = None) -> int:
    """Build it unless it is there; say where it is."""
    parser = argparse.ArgumentParser(prog="hack/helm/build.py", description=__doc__)
    parser.add_argument(
        "--find", action="store_true", help="build nothing: print its path; exit 1 if it is absent"
    )
    helm = binary(os.environ)
    is_there = os.access(helm, os.X_OK)
    if parser.parse_args(arguments).find:
        print(helm)
        return 0 if is_there else 1
    if not is_there and os.environ.get("SPES_HELM"):
        print(f"SPES_HELM={helm} cannot be run: name a helm binary, or unset it")
        return 1
    if not is_there and shutil.which("go") is None:
        print(
            "skipped, and with it the tests that need it: helm. No Go tool chain (go) in PATH; "
            "install it, or let SPES_HELM name a helm binary"
        )
        return 1 if os.environ.get("CI") == "true" else 0
    if not is_there:
        started = time.monotonic()
        print(f"building helm {version()}")
        build(helm)
        print(f"built helm in {time.monotonic() - started:.0f} s")
    print(f"helm: {helm}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
