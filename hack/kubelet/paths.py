"""Paths of a container, which sees its own file system, as paths of a process. Pure.

Each mount lies below the pod's root folder under its mountPath. A path that is a mountPath, lies
below one or above one is moved there: `/data/words` is, and so is `/data`. Only whole words are
looked at, and what follows an `=` in them (`--dir=/work`); paths inside files are not.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path, PurePosixPath


def inside(root: Path, path: PurePosixPath) -> Path:
    """Where the container's absolute `path` lies on this machine."""
    return root / path.relative_to("/")


def rewrite(word: str, mounts: Collection[PurePosixPath], root: Path) -> str:
    """The word of a command or environment, with its path, if it is one, moved into the pod."""
    option, equals, value = word.partition("=")
    if word.startswith("/"):
        return _moved(word, mounts, root)
    return option + equals + _moved(value, mounts, root) if value.startswith("/") else word


def _moved(text: str, mounts: Collection[PurePosixPath], root: Path) -> str:
    path = PurePosixPath(text)
    for mount in mounts:
        above = path != PurePosixPath("/") and mount.is_relative_to(path)
        if path.is_relative_to(mount) or above:
            return str(inside(root, path))
    return text
