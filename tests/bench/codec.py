"""Lossy codecs against a plain numpy copy of the same tensor, as ratios.

    python tests/bench/codec.py [--mebibytes 256]

Speeds count float32 bytes, so "0.5 of a copy" means half as many GiB/s. Everything runs in one
process on one thread, one after another in each repeat, over tensors of the size of one expert's
matrix.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np

# Programs here find the modules beside them.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.raw_results import save
from spes_sync.quantize import Codec, decode, encode, encode_with_residual, encoded_bytes

REPEATS = 5
TENSOR_BYTES = 4 << 20


def each(act: Callable[..., object], *columns: Iterable[object]) -> None:
    for arguments in zip(*columns, strict=True):
        act(*arguments)


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mebibytes", type=int, default=256, help="float32 bytes in all")
    num_bytes = parser.parse_args().mebibytes << 20
    random = np.random.default_rng(0)
    shape = (num_bytes // TENSOR_BYTES, TENSOR_BYTES // 4)
    deltas = random.standard_normal(shape, np.float32)
    residuals = random.standard_normal(shape, np.float32) / np.float32(100)
    outs = np.zeros_like(deltas)
    runs: dict[str, Callable[[], object]] = {"copy": lambda: np.copyto(outs, deltas)}
    for codec in Codec:
        encoded = [bytearray(encoded_bytes(codec, delta.size)) for delta in deltas]
        runs |= {
            f"{codec.value} encode": partial(each, partial(encode, codec), deltas, encoded),
            f"{codec.value} decode": partial(each, partial(decode, codec), encoded, outs),
            f"{codec.value} encode with residual": partial(
                each, partial(encode_with_residual, codec), deltas, residuals, encoded
            ),
        }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(REPEATS):
        for name, run in runs.items():
            times[name].append(seconds(run))
    median = {name: sorted(taken)[REPEATS // 2] for name, taken in times.items()}
    result = {
        name: {
            "gib_per_second": round(num_bytes / 2**30 / taken, 2),
            "of_a_copy": round(median["copy"] / taken, 3),
        }
        for name, taken in median.items()
    }
    save("codec", result)


if __name__ == "__main__":
    main()
