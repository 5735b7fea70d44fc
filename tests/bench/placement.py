"""How long one placement takes: 200 peers, 256 experts, a tenth of the peers gone each time.

python tests/bench/placement.py
"""

import random
import statistics
import sys
import time
from pathlib import Path

# Programs here find the modules beside them.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.raw_results import save
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
    result = {
        "peers": NUM_PEERS,
        "experts": NUM_EXPERTS,
        "median_seconds": statistics.median(seconds),
        "slowest_seconds": max(seconds),
        "moves_above_the_lower_bound": max(moves),
    }
    save("placement", result)


if __name__ == "__main__":
    main()
