"""All trials, put together by arm. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Self

from bench.science.design import ARMS, Arm
from bench.science.estimates import Difference, Estimate, difference, estimate
from bench.science.trials import PeerUse, Trial
from bench.science.wording import MEGABYTE, against

BASELINE = "centralised"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One arm with all its seeds."""

    arm: Arm
    trials: tuple[Trial, ...]

    @property
    def loss(self) -> Estimate:
        """Held-out loss at the end."""
        return estimate([trial.loss for trial in self.trials])

    @property
    def points(self) -> tuple[int, ...]:
        """Tokens at which every trial was evaluated, the start included."""
        return tuple(tokens for tokens, _ in self.trials[0].curve)

    def loss_at(self, tokens: int) -> Estimate:
        """Held-out loss when all peers together had so many tokens, which must be a point."""
        return estimate([dict(trial.curve)[tokens] for trial in self.trials])

    @property
    def state_bytes(self) -> float:
        """Of a peer, the mean of all."""
        return mean(peer.state_bytes for trial in self.trials for peer in trial.peers)

    @property
    def peak_megabytes(self) -> Estimate | None:
        """Of a peer, its mean in a trial; None where it was not measured."""
        if any(peer.peak_bytes is None for trial in self.trials for peer in trial.peers):
            return None
        return self._of_peers(lambda peer: (peer.peak_bytes or 0) / MEGABYTE)

    @property
    def up_bytes(self) -> float:
        """What a peer sends in a round."""
        return self._of_peers(lambda peer: peer.bytes_up).mean

    @property
    def down_bytes(self) -> float:
        """What a peer receives in a round."""
        return self._of_peers(lambda peer: peer.bytes_down).mean

    @property
    def run_bytes(self) -> float:
        """What a peer sends and receives in the whole run."""
        return (self.up_bytes + self.down_bytes) * self.trials[0].rounds

    def _of_peers(self, value: Callable[[PeerUse], float]) -> Estimate:
        return estimate([mean(value(peer) for peer in trial.peers) for trial in self.trials])


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Every arm that was made."""

    by_arm: Mapping[str, Result]

    @classmethod
    def of(cls, trials: Iterable[Trial]) -> Self:
        """Group trials; arms in the order of the design, seeds in theirs."""
        ordered = sorted(trials, key=lambda trial: trial.seed)
        grouped = {name: tuple(trial for trial in ordered if trial.arm == name) for name in ARMS}
        return cls(
            by_arm={
                name: Result(arm=ARMS[name], trials=found)
                for name, found in grouped.items()
                if found
            }
        )

    def __getitem__(self, name: str) -> Result:
        return self.by_arm[name]

    def __contains__(self, name: str) -> bool:
        return name in self.by_arm

    def present(self, *names: str) -> tuple[Result, ...]:
        """Those of the named arms that were made."""
        return tuple(self.by_arm[name] for name in names if name in self.by_arm)

    def above(self, ours: str, theirs: str = BASELINE) -> Difference:
        """How far the final loss of one arm lies above another's."""
        return difference(self[ours].loss, self[theirs].loss)

    def by_seed(self, ours: str, theirs: str = BASELINE) -> tuple[float, ...]:
        """The same, with each seed that both arms have."""
        rival = {trial.seed: trial.loss for trial in self[theirs].trials}
        return tuple(
            trial.loss - rival[trial.seed] for trial in self[ours].trials if trial.seed in rival
        )

    def compare(self, ours: str, theirs: str = BASELINE) -> str:
        """Both, in words."""
        label = self[theirs].arm.label
        return against(self.above(ours, theirs), label, self.by_seed(ours, theirs))

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All of them."""
        return tuple(trial for result in self.by_arm.values() for trial in result.trials)
