#!/usr/bin/env python3
"""Packs a folder as an image of one layer, in the format of `docker save`: no daemon, no registry.

The layer is not compressed: nodes unpack it sooner. Equal folders give equal archives.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import tarfile
import tempfile
from pathlib import Path
from typing import IO

_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CHUNK = 1 << 20
_EPOCH = "1970-01-01T00:00:00Z"


def write_archive(target: Path, tag: str, root: Path, entrypoint: str) -> None:
    """Pack `root` as image `tag`; the archive appears at `target` whole or not at all."""
    draft = target.with_suffix(".draft")
    with tempfile.TemporaryFile() as layer:
        with tarfile.open(fileobj=layer, mode="w") as packed:
            for path in sorted(root.iterdir()):
                packed.add(path, arcname=path.name, filter=_anonymous)
        config = json.dumps(_config(_digest(layer), entrypoint)).encode()
        name = f"{hashlib.sha256(config).hexdigest()}.json"
        manifest = [{"Config": name, "RepoTags": [tag], "Layers": ["layer.tar"]}]
        with tarfile.open(draft, "w") as archive:
            _add(archive, "layer.tar", layer)
            _add(archive, name, io.BytesIO(config))
            _add(archive, "manifest.json", io.BytesIO(json.dumps(manifest).encode()))
    draft.replace(target)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    return member


def _digest(file: IO[bytes]) -> str:
    file.seek(0)
    found = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        found.update(chunk)
    return f"sha256:{found.hexdigest()}"


def _config(layer: str, entrypoint: str) -> dict[str, object]:
    return {
        "architecture": "amd64",
        "os": "linux",
        "created": _EPOCH,
        "config": {"Env": [_PATH], **({"Entrypoint": [entrypoint]} if entrypoint else {})},
        "rootfs": {"type": "layers", "diff_ids": [layer]},
        "history": [{"created": _EPOCH, "created_by": "hack/kind"}],
    }


def _add(archive: tarfile.TarFile, name: str, content: IO[bytes]) -> None:
    member = tarfile.TarInfo(name)
    member.size = content.seek(0, io.SEEK_END)
    content.seek(0)
    archive.addfile(member, content)


def main() -> None:
    """Take the names from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("tag")
    parser.add_argument("root", type=Path)
    parser.add_argument("--entrypoint", default="")
    given = parser.parse_args()
    write_archive(given.target, given.tag, given.root, given.entrypoint)


if __name__ == "__main__":
    main()
