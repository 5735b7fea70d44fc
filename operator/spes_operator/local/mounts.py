"""Secrets as files: what a kubelet mounts into a pod."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def write_secret(directory: Path, data: Mapping[str, bytes]) -> None:
    """Write each key as a file that its owner alone can read; readers see all of it or nothing."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for key, content in data.items():
        staged = directory / f".{key}.new"
        staged.unlink(missing_ok=True)
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        staged.rename(directory / key)
