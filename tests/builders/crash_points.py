"""Every crash point of the sync plane by name, and volumes as a crash at one would leave them."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import spes_sync

# Of one job whose server is killed at each in turn; "POINT:N" is the N-th time in the life of one
# process. The order is that of the job's life: each process is killed at one, and its successor at
# the next.
KILLS = (
    "ready:1",
    "settings:1",
    "plan:1",
    "tokens:1",  # the first plan's tokens
    "tokens:1",  # a Join
    "tokens:2",  # the first use of a session
    "version-model:1",  # of the seed
    "manifest:1",
    "version-tensors:1",
    "version-record:1",
    "head:1",
    "data:1",  # of the first round
    "round:1",
    "spool:1",
    "spool:2",
    "version-model:1",
    "version-delta:1",
    "version-tensors:1",
    "version-record:1",
    "version-directory:1",
    "head:1",
    "data:2",
    "round:2",
    "spools-removed:1",
    "cleaned:1",
    "plan:1",  # the plan that the last rounds run under
)
# That only some algorithms or codecs pass, with what a job must say to pass them.
COMMIT_POINTS: dict[str, dict[str, object]] = {
    "version-residual": {"sync__compression": {"downlink": "INT8"}},
    "experts-merged": {"algorithm": {"name": "SPES", "merge": {"donors": 1, "everyRounds": 1}}},
    "version-velocity": {"algorithm": {"name": "DiLoCo"}},
}
MOMENTS_POINTS = ("moments-written", "moments")
ROLL_BACK_POINT = "head-rolled-back"
# Of a peer, as it pushes and its push counts; and as it loses an expert.
PEER_PUSH_POINTS = ("residual-written", "residual-offered", "residual-adopted")
PEER_LOSS_POINT = "residual-rewritten"

_DISK_WRITES = frozenset({"write", "write_json"})


def killed_at() -> set[str]:
    """The names in KILLS."""
    return {kill.partition(":")[0] for kill in KILLS}


def named_points() -> set[str]:
    """The names that the sources of the sync plane give to crash points.

    An export is written beside the volume and appears whole or not at all; it has tests of its own.
    """
    root = Path(spes_sync.__path__[0])
    sources = [path for path in root.rglob("*.py") if not path.is_relative_to(root / "export")]
    return {name for path in sources for name in _named_in(ast.parse(path.read_text()))}


def _named_in(source: ast.AST) -> Iterator[str]:
    for call in ast.walk(source):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        last = call.args[-1] if call.args else None
        if not isinstance(last, ast.Constant) or not isinstance(last.value, str):
            continue
        receiver, method = ast.unparse(call.func.value), call.func.attr
        of_disk = receiver.endswith("disk") and method in _DISK_WRITES
        if of_disk or method in ("reached", "close", "finish"):
            yield last.value


class Photographs:
    """Copies a volume the first time that it passes each of some points: a disk's `reached`."""

    def __init__(self, volume: Path, points: Iterable[str] = ()) -> None:
        self._volume = volume
        self.wanted = set(points)
        self.taken: dict[str, Path] = {}

    def __call__(self, point: str) -> None:
        if point not in self.wanted:
            return
        self.wanted.discard(point)
        copy = self._volume.with_name(f"{self._volume.name}-at-{point}")
        shutil.copytree(self._volume, copy)
        self.taken[point] = copy
