"""Kills training alone at every moment of a save and resumes it; run as a program.

    python -m builders.crash_sweep DIRECTORY

Each attempt is a forked child, so that torch and TensorBoard are imported once. Prints one line for
every crash point that killed a child: "hit NAME:COUNT equal" or "differs", from a run without a
kill.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import torch
import torch.utils.tensorboard  # else each child would do it, for its training log
from builders.nano import nano_spec, write_words
from spes_sync.disk import Disk
from spes_trainer.checkpoint import CRASH_POINTS
from spes_trainer.progress import Lines
from spes_trainer.train import AloneOptions, train_alone

# In the very first save, with nothing to fall back on; and at each moment of the second.
ATTEMPTS = (("checkpoint weights written", 1), *((point, 2) for point in CRASH_POINTS))


def run_alone(root: Path, name: str, reached: Callable[[str], None]) -> None:
    """Train the smallest job in a directory of its own, from wherever its checkpoint is."""
    options = AloneOptions(
        directory=root / name, data_root=root / "data", disk=Disk(reached=reached)
    )
    (root / name).mkdir(exist_ok=True)
    with Path(os.devnull).open("w") as out:
        train_alone(nano_spec(), options, display=Lines(out), stop=threading.Event())


def digest(directory: Path) -> str:
    """Hash of everything in the latest checkpoint."""
    folder = directory / "checkpoints" / (directory / "latest").read_text()
    found = hashlib.sha256(folder.name.encode())
    for path in sorted(folder.iterdir()):
        found.update(path.read_bytes())
    return found.hexdigest()


def in_child(work: Callable[[], None]) -> int:
    """Run in a forked child; its wait status."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def kill_at(point: str, count: int) -> Callable[[str], None]:
    """A hook that kills its process the count-th time it passes a point."""
    passed = []

    def reached(name: str) -> None:
        passed.append(name)
        if passed.count(point) == count:
            os.kill(os.getpid(), signal.SIGKILL)

    return reached


def main() -> None:
    torch.set_num_threads(1)
    root = Path(sys.argv[1])
    write_words(root / "data")
    assert in_child(lambda: run_alone(root, "reference", lambda _: None)) == 0
    reference = digest(root / "reference")
    for point, count in ATTEMPTS:
        name = f"{point}-{count}".replace(" ", "-")
        hook = kill_at(point, count)
        status = in_child(lambda name=name, hook=hook: run_alone(root, name, hook))
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            continue
        assert in_child(lambda name=name: run_alone(root, name, lambda _: None)) == 0
        verdict = "equal" if digest(root / name) == reference else "differs"
        sys.stdout.write(f"hit {point}:{count} {verdict}\n")


if __name__ == "__main__":
    main()
