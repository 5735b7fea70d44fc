"""How long one look of the hub takes: 50 jobs over 200 members each, where nothing changes.

    PYTHONPATH=crds:operator:tests python tests/bench/reconcile.py

Prints the time of all pure passes together; asserts nothing, since machines differ.
"""

import statistics
import sys
import time

from builders.large_hub import NOW, at_rest
from spes_operator.hub.reconcile import reconcile_job

NUM_MEMBERS, NUM_JOBS, NUM_RUNS = 200, 50, 5


def main() -> None:
    """Look at all jobs, several times over."""
    seen = at_rest(NUM_MEMBERS)
    seconds = []
    for _ in range(NUM_RUNS):
        start = time.process_time()
        for _ in range(NUM_JOBS):
            reconcile_job(seen, now=NOW)
        seconds.append(time.process_time() - start)
    sys.stdout.write(
        f"{NUM_JOBS} jobs x {NUM_MEMBERS} members: median {statistics.median(seconds):.2f} s of "
        f"CPU in all, slowest {max(seconds):.2f} s\n"
    )


if __name__ == "__main__":
    main()
