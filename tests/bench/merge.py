"""Expert merging of one layer against the direct formula, as ratios: time, memory, difference.

    python tests/bench/merge.py [--width 1024]

The direct formula broadcasts all pairs of experts, M x M x N, as the paper's released server does;
it runs at an eighth of the weights, or its memory would not fit most machines. Both sides run in
one process on one thread; ratios are per weight of a matrix, of CPU seconds.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np

# Programs here find the modules beside them.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.raw_results import save
from spes_sync.merge import Array, MergeStep, merge_experts

NUM_EXPERTS = 16
NUM_DONORS = 4
ALPHA = 0.1
REPEATS = 7
# The direct formula runs on this share of a matrix.
DIRECT_SHARE = 8
MATRICES = ("w1", "v1", "w2")


def layer(num_rows: int, width: int) -> dict[str, Array]:
    random = np.random.default_rng(0)
    return {
        f"layers.0.experts.{expert}.{matrix}": random.standard_normal((num_rows, width), np.float32)
        for expert in range(NUM_EXPERTS)
        for matrix in MATRICES
    }


def merge(weights: dict[str, Array]) -> Iterator[tuple[str, Array]]:
    step = MergeStep(alpha=ALPHA, num_donors=NUM_DONORS)
    return merge_experts(weights, weights.__getitem__, step)


def direct(weights: dict[str, Array]) -> dict[str, Array]:
    stacks = {
        m: np.stack([weights[f"layers.0.experts.{e}.{m}"].ravel() for e in range(NUM_EXPERTS)])
        for m in MATRICES
    }
    w1 = stacks["w1"] / np.linalg.norm(stacks["w1"], axis=1, keepdims=True)
    similarity = (w1[:, None] * w1[None]).sum(-1)
    np.fill_diagonal(similarity, -np.inf)
    donors = np.argsort(-similarity, axis=1)[:, :NUM_DONORS]
    return {
        f"layers.0.experts.{e}.{m}": row
        for m, stack in stacks.items()
        for e, row in enumerate(stack + ALPHA * (stack[donors] - stack[:, None]).mean(1))
    }


def measure(run: Callable[[], object]) -> tuple[float, float, int]:
    """Median seconds of the clock and of the CPU, and the peak bytes of one more run."""
    seconds, cpu_seconds = [], []
    for _ in range(REPEATS):
        start, cpu = time.perf_counter(), time.process_time()
        run()
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu)
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return median(seconds), median(cpu_seconds), peak


def drain(weights: dict[str, Array]) -> None:
    for _ in merge(weights):
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=1024, help="a matrix is width x width")
    width = parser.parse_args().width
    weights, small = layer(width, width), layer(width // DIRECT_SHARE, width)
    matrix_bytes = NUM_EXPERTS * width * width * 4
    seconds, cpu_seconds, peak = measure(lambda: drain(weights))
    _, direct_cpu_seconds, direct_peak = measure(lambda: direct(small))
    expected = direct(small)
    difference = max(
        float(np.abs(value.ravel() - expected[name]).max() / np.abs(expected[name]).max())
        for name, value in merge(small)
    )
    result = {
        "experts": NUM_EXPERTS,
        "weights_of_one_expert": len(MATRICES) * width * width,
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu_seconds, 3),
        "peak_over_one_matrix": round(peak / matrix_bytes, 3),
        "direct_peak_over_one_matrix": round(direct_peak * DIRECT_SHARE / matrix_bytes, 3),
        "direct_share": f"1/{DIRECT_SHARE}",
        "times_faster_than_direct": round(direct_cpu_seconds * DIRECT_SHARE / cpu_seconds, 1),
        "relative_difference": difference,
    }
    save("merge", result)


if __name__ == "__main__":
    main()
