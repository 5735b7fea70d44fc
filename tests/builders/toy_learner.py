"""A learner small enough to compute by hand: two quadratic bowls, plain SGD, numpy.

Peer i minimises 0.5 (psi - a_i)^2 + 0.5 (phi_1 + phi_2 - b_i)^2 and owns one phi. With a = (1, 3),
b = (2, 4), rate 0.1 and a start at 0, one synchronised step gives psi 0.2, phi (0.2, 0.4); two
steps between synchronisations give psi 0.38, phi (0.38, 0.76).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from spes_sync.client import DataSummary, OwnershipChange, SavePoint, StepPosition, StepResult
from spes_sync.codec import Array
from spes_sync.manifest import SHARED, Manifest, TensorSpec

PSI = "psi"
SEQUENCE_TOKENS = 8


def phi(expert: int) -> str:
    """The name of an expert's only tensor."""
    return f"layers.0.experts.{expert}.w1"


def toy_manifest(num_experts: int = 2, size: int = 1, *, replicated: bool = False) -> Manifest:
    """One shared tensor and one an expert, of `size` equal numbers; replicated: all are shared."""
    experts = [
        TensorSpec(name=phi(expert), shape=(size,), expert=SHARED if replicated else expert)
        for expert in range(num_experts)
    ]
    return Manifest((TensorSpec(name=PSI, shape=(size,)), *experts))


@dataclass
class ToyVolume:
    """What survives a toy process: its checkpoints, newest last."""

    checkpoints: list[tuple[SavePoint, dict[str, Array]]] = field(default_factory=list)


class ArrayWeights:
    """Weights as a dict of arrays."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.values: dict[str, Array] = {t.name: np.zeros(t.shape, np.float32) for t in manifest}

    def read(self, names: Sequence[str]) -> Iterator[tuple[str, Array]]:
        for name in names:
            yield name, self.values[name]

    def write(self, tensors: Iterable[tuple[str, Array]]) -> None:
        for name, value in tensors:
            self.values[name][...] = value


class ToyLearner(ArrayWeights):
    """Implements `spes_sync.client.Learner`."""

    rate = np.float32(0.1)

    def __init__(
        self,
        *,
        a: float,
        b: float,
        volume: ToyVolume | None = None,
        manifest: Manifest | None = None,
    ) -> None:
        super().__init__(manifest or toy_manifest())
        self.a, self.b = np.float32(a), np.float32(b)
        self.volume = volume or ToyVolume()
        self.num_experts = len(self.manifest) - 1
        self.replicated = not self.manifest.experts
        self.owned = tuple(range(self.num_experts)) if self.replicated else ()
        self.positions: list[StepPosition] = []
        self.changes: list[OwnershipChange] = []
        self.discarded = 0
        self.losses: dict[int, float] = {}
        self.anchors: list[dict[str, Array]] = []
        self.before_step: Callable[[StepPosition], None] = lambda _: None
        self.num_sequences = 1000
        self.fingerprint = "toy"
        self.loss_override: float | None = None
        self.tokens: int | None = None  # that it says a step used; None: all it was given

    @property
    def data(self) -> DataSummary:
        return DataSummary(fingerprint=self.fingerprint, num_sequences=self.num_sequences)

    def own(self, change: OwnershipChange) -> None:
        self.changes.append(change)
        self.owned = change.owned

    def step(self, position: StepPosition) -> StepResult | None:
        self.before_step(position)
        self.positions.append(position)
        psi_error = self.values[PSI] - self.a
        phi_error = self._phi_sum() - self.b
        loss = self.loss_override or float(0.5 * (psi_error**2 + phi_error**2).mean())
        self.values[PSI] -= self.rate * psi_error
        for expert in self.owned:
            self.values[phi(expert)] -= self.rate * phi_error
        tokens = self.tokens or SEQUENCE_TOKENS * len(position.sequences)
        routed = [tokens] * self.num_experts
        return StepResult(loss=loss, tokens=tokens, routed_tokens=routed)

    def anchor(self) -> None:
        self.anchors.append({name: np.array(value) for name, value in self.values.items()})

    def evaluate(self, num_tokens: int) -> float:  # noqa: ARG002 - the bowls have no data
        psi_error, phi_error = self.values[PSI] - 2, self._phi_sum() - 3
        return float((psi_error**2 + phi_error**2).mean())

    def moments(self, expert: int) -> Mapping[str, Array]:
        """As if by AdamW: recognisable numbers."""
        return {
            tensor.name: np.full(tensor.shape, expert + 1, np.float32)
            for tensor in self.manifest.moments_of(expert)
        }

    def restore(self) -> SavePoint | None:
        if not self.volume.checkpoints:
            return None
        point, values = self.volume.checkpoints[-1]
        self.write(values.items())
        if not self.replicated:
            self.owned = tuple(sorted(point.owned))
        return point

    def save(self, point: SavePoint) -> None:
        self.volume.checkpoints.append((point, {n: np.array(v) for n, v in self.values.items()}))

    def judge(self, version: int, loss: float) -> None:
        self.losses[version] = loss

    def discard(self) -> None:
        self.discarded += 1

    def _phi_sum(self) -> Array:
        total: Array = np.zeros(self.manifest[PSI].shape, np.float32)
        for expert in range(self.num_experts):
            total += self.values[phi(expert)]
        return total


class Drifter(ToyLearner):
    """Moves every number by `a` in each step, wherever it is, and says that it used `b` tokens."""

    def step(self, position: StepPosition) -> StepResult | None:
        self.before_step(position)
        self.positions.append(position)
        for value in self.values.values():
            value += self.a
        tokens = int(self.b)
        return StepResult(loss=1.0, tokens=tokens, routed_tokens=[tokens] * self.num_experts)
