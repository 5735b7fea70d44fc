#!/usr/bin/env python3
"""Builds the control plane that tests run: etcd, kube-apiserver, kube-controller-manager, kubectl.

`make controlplane` calls it. Binaries are static, made from the Go modules pinned beside this file
and kept in the user's cache, so a second call does nothing. A folder named by KUBEBUILDER_ASSETS is
used as it is instead. Without Go it says what is skipped; in CI (CI=true) that is a failure.
Standard library only: it also runs before the virtual environment exists.
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
# Binary -> the module folder it is pinned in, and its package.
TOOLS: Mapping[str, tuple[str, str]] = {
    "etcd": ("etcd", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": ("kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver"),
    "kube-controller-manager": ("kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    "kubectl": ("kubernetes", "k8s.io/kubernetes/cmd/kubectl"),
}


def kubernetes_version() -> str:
    """The version that kubernetes/go.mod pins, for example v1.34.4."""
    pinned = re.search(
        r"^\s*k8s\.io/kubernetes (v\S+)", (HERE / "kubernetes/go.mod").read_text(), re.MULTILINE
    )
    assert pinned is not None, "kubernetes/go.mod pins no k8s.io/kubernetes"
    return pinned[1]


def assets(environment: Mapping[str, str]) -> Path:
    """Where the binaries are, or will be once they are built."""
    if given := environment.get("KUBEBUILDER_ASSETS"):
        return Path(given)
    cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "spes" / "controlplane" / kubernetes_version()


def missing(folder: Path) -> list[str]:
    """The binaries that are not in `folder`."""
    return [name for name in TOOLS if not os.access(folder / name, os.X_OK)]


def build(name: str, folder: Path) -> None:
    """Compile one binary into `folder`; it appears there whole or not at all."""
    module, package = TOOLS[name]
    draft = folder / f".{name}.{os.getpid()}"
    command = ["go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false"]
    command += ["-ldflags", _linker_flags(), "-o", str(draft), package]
    try:
        subprocess.run(  # noqa: S603 - the arguments are constants
            command, cwd=HERE / module, env={**os.environ, "CGO_ENABLED": "0"}, check=True
        )
        draft.replace(folder / name)
    finally:
        draft.unlink(missing_ok=True)


def _linker_flags() -> str:
    """Strip symbols, and let Kubernetes know its own version, which its release build sets."""
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".", 2)
    known = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
    }
    return " ".join(
        ["-s", "-w", *(f"-X k8s.io/component-base/version.{k}={v}" for k, v in known.items())]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what is missing; say where it is."""
    parser = argparse.ArgumentParser(prog="hack/controlplane/build.py", description=__doc__)
    parser.add_argument(
        "--find", action="store_true", help="build nothing: print the folder; exit 1 if incomplete"
    )
    folder = assets(os.environ)
    absent = missing(folder)
    if parser.parse_args(arguments).find:
        print(folder)
        return 1 if absent else 0
    if absent and os.environ.get("KUBEBUILDER_ASSETS"):
        print(f"KUBEBUILDER_ASSETS={folder} lacks {', '.join(absent)}: add them, or unset it")
        return 1
    if absent and shutil.which("go") is None:
        print(
            f"skipped, and with it the tests that need it: {', '.join(absent)}. No Go tool chain "
            "(go) in PATH; install it, or set KUBEBUILDER_ASSETS to a folder with these binaries"
        )
        return 1 if os.environ.get("CI") == "true" else 0
    folder.mkdir(parents=True, exist_ok=True)
    for name in absent:
        print(f"building {name} {kubernetes_version() if name != 'etcd' else ''}".rstrip())
        started = time.monotonic()
        build(name, folder)
        print(f"built {name} in {time.monotonic() - started:.0f} s")
    print(f"control plane: {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
