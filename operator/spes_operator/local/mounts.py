"""Secrets as files: what a kubelet mounts into a pod."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from spes_api.private_files import write_private


def write_secret(directory: Path, data: Mapping[str, bytes]) -> None:
    """Write each key as a file that its owner alone can read; readers see all of it or nothing."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for key, content in data.items():
        write_private(directory / key, content)
