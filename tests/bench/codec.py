"""Codecs and the Huffman coder against a plain numpy copy of the same tensors, as ratios.

    python tests/bench/codec.py [--mebibytes 256]

Speeds count float32 bytes, so "0.5 of a copy" means half as many GiB/s. Everything runs in one
process on one thread, one after another in each repeat, over tensors of the size of one expert's
matrix. The Huffman coder takes what a codec made, in chunks of 1 MiB; beside it stands zlib's own
stream over all of it, which is its floor. "compression" is float32 bytes over bytes on the wire.
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np

# Programs here find the modules beside them.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.raw_results import save
from spes_sync.entropy import Huffman, expanded
from spes_sync.frames import MAX_CHUNK_BYTES
from spes_sync.quantize import Codec, decode, encode, encode_with_residual, encoded_bytes

REPEATS = 5
TENSOR_BYTES = 4 << 20
Runs = dict[str, Callable[[], object]]


def each(act: Callable[..., object], *columns: Iterable[object]) -> None:
    for arguments in zip(*columns, strict=True):
        act(*arguments)


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def huffman(payload: bytes) -> list[tuple[bytes, int]]:
    """The chunks as they travel, each with its size in the payload."""
    coder = Huffman()
    chunks = (
        payload[start : start + MAX_CHUNK_BYTES]
        for start in range(0, len(payload), MAX_CHUNK_BYTES)
    )
    return [(coder.coded(chunk) or chunk, len(chunk)) for chunk in chunks]


def zlib_stream(payload: bytes) -> bytes:
    coder = zlib.compressobj(1, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)
    return coder.compress(payload) + coder.flush()


def expand(coded: list[tuple[bytes, int]]) -> None:
    for data, size in coded:
        if len(data) < size:
            expanded(data, size)


def entropy_runs(codec: Codec, payload: bytes) -> Runs:
    return {
        f"{codec.value} Huffman": partial(huffman, payload),
        f"{codec.value} Huffman back": partial(expand, huffman(payload)),
        f"{codec.value} zlib stream": partial(zlib_stream, payload),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mebibytes", type=int, default=256, help="float32 bytes in all")
    num_bytes = parser.parse_args().mebibytes << 20
    random = np.random.default_rng(0)
    shape = (num_bytes // TENSOR_BYTES, TENSOR_BYTES // 4)
    deltas = random.standard_normal(shape, np.float32)
    residuals = random.standard_normal(shape, np.float32) / np.float32(100)
    outs = np.zeros_like(deltas)
    runs: Runs = {"copy": lambda: np.copyto(outs, deltas)}
    compression: dict[str, float] = {}
    for codec in Codec:
        encoded = [bytearray(encoded_bytes(codec, delta.size)) for delta in deltas]
        runs |= {
            f"{codec.value} encode": partial(each, partial(encode, codec), deltas, encoded),
            f"{codec.value} decode": partial(each, partial(decode, codec), encoded, outs),
            f"{codec.value} encode with residual": partial(
                each, partial(encode_with_residual, codec), deltas, residuals, encoded
            ),
        }
        each(partial(encode, codec), deltas, encoded)
        payload = b"".join(encoded)
        compression[f"{codec.value} encode"] = num_bytes / len(payload)
        on_the_wire = sum(len(data) for data, _ in huffman(payload))
        compression[f"{codec.value} Huffman"] = num_bytes / on_the_wire
        if codec is not Codec.FP32:
            runs |= entropy_runs(codec, payload)
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
        | ({"compression": round(compression[name], 2)} if name in compression else {})
        for name, taken in median.items()
    }
    save("codec", result)


if __name__ == "__main__":
    main()
