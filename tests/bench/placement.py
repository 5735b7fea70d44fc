"""How long one placement takes: 200 peers, 256 experts, a tenth of the peers gone each time.

    PYTHONPATH=crds:operator python tests/bench/placement.py

Prints the median and the slowest; asserts nothing, since machines differ.
"""

import random
import statistics
import sys
import time

from spes_operator.names import ExpertId, PeerId
from spes_operator.placement.decision import Candidate
from spes_operator.placement.placement import place

NUM_PEERS, NUM_EXPERTS, NUM_RUNS = 200, 256, 50


def main() -> None:
    """Place, take peers away, place again; time the second."""
    chance = random.Random(0)
    peers = [
        Candidate(
            peer=PeerId(f"uni-{index:03}.0"),
            capacity=chance.randint(0, 4),
            rate=chance.uniform(100, 5000),
        )
        for index in range(NUM_PEERS)
    ]
    routed = {ExpertId(expert): chance.randrange(10**6) for expert in range(NUM_EXPERTS)}
    before = place(NUM_EXPERTS, peers, owners={}, routed_tokens=routed)
    seconds, moves = [], []
    for _ in range(NUM_RUNS):
        staying = chance.sample(peers, NUM_PEERS - NUM_PEERS // 10)
        start = time.perf_counter()
        after = place(NUM_EXPERTS, staying, owners=before.owners, routed_tokens=routed)
        seconds.append(time.perf_counter() - start)
        moves.append(len(after.moves) - after.lower_bound)
    median, slowest = statistics.median(seconds) * 1e3, max(seconds) * 1e3
    sys.stdout.write(
        f"{NUM_PEERS} peers, {NUM_EXPERTS} experts: median {median:.1f} ms, "
        f"slowest {slowest:.1f} ms; moves above the lower bound: {max(moves)}\n"
    )


if __name__ == "__main__":
    main()
