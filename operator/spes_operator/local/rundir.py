"""RUN_DIR, the folder that holds one local run: its layout, and the lock that keeps others out.

spesjob.yaml  members.yaml  cluster.json  run.json  lock  tls/  sync/  members/<peer>/
data/<dataset>  logs/  sample.txt  report.html  summary.json
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

import yaml
from spes_api.schema_base import ApiModel

from spes_operator.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RunDir:
    """Names of the files of a run."""

    root: Path

    @property
    def job(self) -> Path:
        """The SpesJob as it runs, options of the command line included."""
        return self.root / "spesjob.yaml"

    @property
    def members(self) -> Path:
        """The members file."""
        return self.root / "members.yaml"

    @property
    def cluster(self) -> Path:
        """The in-memory API's objects."""
        return self.root / "cluster.json"

    @property
    def progress(self) -> Path:
        """What a resumed run needs beside the cluster's objects."""
        return self.root / "run.json"

    @property
    def tls(self) -> Path:
        """CA and the hub's certificates."""
        return self.root / "tls"

    @property
    def sync(self) -> Path:
        """The sync server's volume."""
        return self.root / "sync"

    @property
    def head(self) -> Path:
        """Says which version of the model is the last; there is one before any peer trains."""
        return self.sync / "HEAD"

    @property
    def data(self) -> Path:
        """One link per dataset."""
        return self.root / "data"

    @property
    def logs(self) -> Path:
        """Output of every process."""
        return self.root / "logs"

    @property
    def report(self) -> Path:
        """What people read when it is over."""
        return self.root / "report.html"

    @property
    def sample(self) -> Path:
        """Text that the final model wrote."""
        return self.root / "sample.txt"

    def peer(self, name: str) -> Path:
        """A peer's work volume."""
        return self.root / "members" / name


class RunLock:
    """Exclusive hold of a RUN_DIR; the kernel ends it with the process, however that ends."""

    def __init__(self, file: IO[str]) -> None:
        """Keep the locked file; see `take`."""
        self._file = file

    @classmethod
    def take(cls, run: RunDir) -> Self:
        """Lock `run`, whose folder exists.

        Raises:
            ConfigError: Another process runs there; names it.
        """
        file = (run.root / "lock").open("a+", encoding="ascii")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read(32).strip() or "unknown"
            file.close()
            raise ConfigError(
                f"{run.root} is in use by another `spes run` (process {holder}); "
                "wait for it, or give another --output"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        return cls(file)

    def release(self) -> None:
        """Let others in."""
        self._file.close()


def damaged_files(folder: RunDir) -> list[str]:
    """What the sync server would refuse to start with, each in a sentence."""
    problems = []
    for path in sorted(folder.sync.glob("*.json")):
        if path.name == "ready.json":  # written anew at every start
            continue
        try:
            json.loads(path.read_bytes())
        except ValueError as error:
            problems.append(f"{path} is damaged ({error}); restore it, or start a new run")
    return problems


def write_model(path: Path, model: ApiModel) -> None:
    """Write what a person wrote, or might have, as YAML; defaults are written out."""
    document = model.model_dump(by_alias=True, mode="json", exclude={"status"}, exclude_none=True)
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
