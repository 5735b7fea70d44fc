"""What the training log says of one optimizer step."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from spes_trainer.metrics.experts import ExpertLoad
from spes_trainer.step import StepOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in a run a step was made, and how long it took."""

    step: int
    """Optimizer steps of this peer, this one included."""
    round: int
    global_tokens: int
    """Of all peers as far as known, this step included: the position of the schedule."""
    learning_rate: float
    seconds: float
    """From its beginning to its end, all processes of the peer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One line of the log. Of a peer of several processes, all of them together."""

    time: datetime
    place: Place
    outcome: StepOutcome
    load: ExpertLoad
    mfu: float | None
    """Model FLOPs utilisation; None on a device whose peak is not known."""

    @property
    def tokens_per_second(self) -> float:
        """Of this step, without what lies between steps."""
        return self.outcome.tokens / self.place.seconds

    def scalars(self) -> dict[str, float]:
        """All numbers but the lists and what counts up, by the names of the log."""
        named: dict[str, float | None] = {
            "loss": self.outcome.loss,
            "zLoss": self.outcome.z_loss,
            "loadBalance": self.outcome.load_balance,
            "routerZLoss": self.outcome.router_z_loss,
            "gradientNorm": self.outcome.gradient_norm,
            "learningRate": self.place.learning_rate,
            "tokensPerSecond": self.tokens_per_second,
            "mfu": self.mfu,
            "peakMemoryBytes": self.outcome.peak_bytes or None,
            "expertUtilisation": self.load.utilisation,
            "expertHighestLoad": self.load.highest,
        }
        return {name: value for name, value in named.items() if value is not None}

    def to_json(self) -> dict[str, object]:
        """As a line of `metrics.jsonl` has it; what is not known is absent."""
        return {
            "time": self.time.isoformat(timespec="milliseconds"),
            "step": self.place.step,
            "round": self.place.round,
            "globalTokens": self.place.global_tokens,
            "tokens": self.outcome.tokens,
            "seconds": _short(self.place.seconds),
            **{name: _short(value) for name, value in self.scalars().items()},
            "expertLoad": [round(share, 5) for share in self.load.shares],
            "deadExperts": list(self.load.dead),
        }


def _short(value: float) -> float:
    """Six digits that count, as losses in float32 have; whole numbers stay whole."""
    return value if isinstance(value, int) else float(f"{value:.6g}")
