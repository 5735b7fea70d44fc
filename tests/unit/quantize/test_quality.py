"""What error feedback is for: a small regression trained by two peers through coded rounds.

Two groups of numbers share blocks, as in a real layer: a few whose gradients are large noise, which
set the scale, and many that are learnt by steps far below it. Without feedback those steps round to
zero in every round and nothing is learnt, however long.
"""

from __future__ import annotations

import numpy as np
import pytest
from spes_sync.quantize import Codec, encode_with_residual, encoded_bytes

SIZE, NOISY = 512, 8
ROUNDS, STEPS, RATE = 150, 4, 0.13
NOISE, CURVATURE = 50.0, 0.05
SEEDS = range(2)
TARGET = np.random.default_rng(99).normal(size=SIZE).astype(np.float32)


class Link:
    """One direction of one peer, or the downlink of all."""

    def __init__(self, codec: Codec, *, feedback: bool) -> None:
        self._codec, self._feedback = codec, feedback
        self._owed = np.zeros(SIZE, np.float32)

    def send(self, delta: np.ndarray) -> np.ndarray:
        out = bytearray(encoded_bytes(self._codec, SIZE))
        sent = encode_with_residual(self._codec, delta, self._owed, out)
        if self._feedback:
            self._owed = sent.residual
        return sent.decoded


def final_loss(codec: Codec, seed: int, *, feedback: bool = True) -> float:
    """Loss of the served model after all rounds of two peers with noise of their own."""
    random = np.random.default_rng(seed)
    served = np.zeros(SIZE, np.float32)
    up, down = [Link(codec, feedback=feedback) for _ in range(2)], Link(codec, feedback=feedback)
    for _ in range(ROUNDS):
        change = np.zeros(SIZE, np.float32)
        for link in up:
            weights = served.copy()
            for _ in range(STEPS):
                gradient = np.float32(CURVATURE) * (weights - TARGET)
                gradient[:NOISY] = NOISE * random.standard_normal(NOISY)
                gradient += random.standard_normal(SIZE).astype(np.float32) / 50
                weights -= np.float32(RATE) * gradient
            change += link.send(weights - served) / np.float32(2)
        served += down.send(change)
    return float(np.square(served - TARGET)[NOISY:].mean())


def learnt(codec: Codec, *, feedback: bool = True) -> np.ndarray:
    """Share of the first loss that is gone in the end, for each seed."""
    first = float(np.square(TARGET)[NOISY:].mean())
    return np.array([1 - final_loss(codec, seed, feedback=feedback) / first for seed in SEEDS])


@pytest.fixture(scope="module")
def exact() -> np.ndarray:
    shares = learnt(Codec.FP32)
    assert shares.min() > 0.999
    return shares


def test_int8_with_feedback_learns_what_fp32_does(exact):
    """What is owed at the end, at most absmax / 254, is all that is missing."""
    assert np.abs(learnt(Codec.INT8) - exact).max() < 0.001


def test_int8_without_feedback_learns_little(exact):
    assert learnt(Codec.INT8, feedback=False).max() < exact.min() / 4


def test_bf16_needs_no_feedback_here(exact):
    """Its error is relative to each number: small steps keep their bits whatever lies beside."""
    assert np.abs(learnt(Codec.BF16, feedback=False) - exact).max() < 0.001
