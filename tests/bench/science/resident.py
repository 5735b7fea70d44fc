"""Memory of the trainers of a running `spes run`, read from outside. Linux alone.

The kernel keeps the highest resident size that each process has had (VmHWM), so that looking now
and then, until the process ends, misses next to nothing.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

_PROCESSES = Path("/proc")


def peak_bytes_of_peers(root: int) -> dict[str, int]:
    """Highest resident size so far of each trainer below the process `root`, by its peer."""
    peaks = {}
    for process in _descendants(root):
        try:
            arguments = (process / "cmdline").read_text().split("\0")
            status = (process / "status").read_text()
        except OSError:  # it has just ended
            continue
        fields = dict(line.split(":", 1) for line in status.splitlines())
        if "--peer" in arguments and "VmHWM" in fields:
            peer = arguments[arguments.index("--peer") + 1]
            peaks[peer] = int(fields["VmHWM"].split()[0]) * 1024
    return peaks


def _descendants(root: int) -> list[Path]:
    children = defaultdict(list)
    for process in _PROCESSES.glob("[0-9]*"):
        try:
            status = (process / "stat").read_text()
        except OSError:
            continue
        parent = int(status.rpartition(")")[2].split()[1])
        children[parent].append(process)
    found = list(children[root])
    for process in found:  # grows as it is walked
        found.extend(children[int(process.name)])
    return found
