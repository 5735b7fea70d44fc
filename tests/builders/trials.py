"""Trials of the comparison in bench.science, with losses as a test wants them."""

from __future__ import annotations

from bench.science.design import ARMS, FULL, LEARNING_RATE, STEP_TOKENS, job_of
from bench.science.trials import PeerUse, Trial

POINTS = 6


def trial(arm: str, seed: int, loss: float, *, sha256: str = "a" * 64, start: float = 5.9) -> Trial:
    """A run whose loss falls in a straight line from the start to `loss`."""
    shape = ARMS[arm]
    tokens = FULL.num_steps * STEP_TOKENS
    job = job_of(shape, seed=seed, num_steps=FULL.num_steps, learning_rate=LEARNING_RATE)
    share = 1.0 if shape.algorithm != "SPES" else 1 / shape.num_peers
    return Trial(
        arm=arm,
        seed=seed,
        commit="c" * 40,
        versions={"python": "3.11.7"},
        spec=job["spec"],
        data={"fingerprint": "f" * 64, "heldOutTokens": 1000, "unigramLoss": 3.1},
        rounds=FULL.num_steps // shape.every_steps,
        tokens=tokens,
        curve=tuple(
            (tokens * point // POINTS, start + (loss - start) * point / POINTS)
            for point in range(POINTS + 1)
        ),
        model_sha256=sha256,
        cpu_seconds=60.0,
        peers=tuple(
            PeerUse(
                peer=f"peer-{number}.0",
                bytes_up=7_000_000 * share,
                bytes_down=7_000_000.0,
                state_bytes=round(28_000_000 * share),
                peak_bytes=700_000_000 + seed * 1_000_000,
            )
            for number in range(shape.num_peers)
        ),
    )


def trials(arm: str, *losses: float) -> list[Trial]:
    """One a seed, from seed 0 on."""
    return [trial(arm, seed, loss) for seed, loss in enumerate(losses)]
