"""What one process of a peer holds, and what all of them do with it together.

Every method is called by all ranks in the same order; `commands` is how rank 0 has the others do
so. Whole tensors exist on rank 0 alone, one at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from spes_api.job import SpesJobSpec
from spes_sync.disk import Disk
from spes_sync.manifest import expert_of
from torch import Tensor, nn

from spes_trainer.assembly import build_stepper
from spes_trainer.checkpoint import CheckpointStore, Snapshot
from spes_trainer.data.token_file import Tokens
from spes_trainer.optim import Moments, moments_from_tensors, moments_to_tensors
from spes_trainer.ranks import ALONE, Ranks
from spes_trainer.rows import local_rows
from spes_trainer.start import load_first_weights
from spes_trainer.step import StepInterruptedError, StepOutcome
from spes_trainer.weights import load_weights, weights_of

# Of stored moments: those that have rows.
_WITH_ROWS = ("exp_avg.", "exp_avg_sq.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """What a process has on this machine."""

    directory: Path
    data_root: Path
    """The folder that holds each dataset by name."""
    stop: threading.Event
    """Set on SIGTERM: an unfinished step is dropped."""
    slowdown: float = 1.0
    """Step time is multiplied by this, by sleeping."""
    profile_steps: int = 0
    """Steps that are recorded by torch's profiler, see `metrics.profiling`; 0: none."""
    disk: Disk = field(default_factory=Disk)


class Share:
    """This rank's rows of the weights and of what belongs to them."""

    def __init__(
        self,
        spec: SpesJobSpec,
        workplace: Workplace,
        *,
        document_end: int | None,
        ranks: Ranks = ALONE,
    ) -> None:
        """Start with the weights that the seed gives; experts are owned later, or all for good."""
        self._spec = spec
        self._workplace = workplace
        self._ranks = ranks
        self.stepper = build_stepper(spec, document_end=document_end, ranks=ranks)
        experts = range(spec.model.resolve().num_experts)
        self._for_good = tuple(experts) if spec.algorithm.replicated else ()
        self.stepper.model.own(self._for_good)
        self.parameters: dict[str, nn.Parameter] = dict(self.stepper.model.named_parameters())
        self.store = CheckpointStore(
            workplace.directory,
            keep_last=spec.checkpoint.keep_last,
            keep_best=spec.checkpoint.keep_best,
            disk=workplace.disk,
            ranks=ranks,
        )

    # Weights.

    def read(self, name: str) -> Tensor:
        """A live weight, whole on rank 0; alone on a CPU it is the weight itself."""
        parameter = self.parameters[name]
        return self._ranks.collect(local_rows(parameter.detach()), len(parameter))

    def write(self, name: str, value: Tensor | None) -> None:
        """Copy what rank 0 has whole into the live weight."""
        parameter = self.parameters[name]
        self._ranks.spread(value, local_rows(parameter.detach()), len(parameter))

    def load_first_weights(self) -> None:
        """Those that the job names, if any. Every rank reads them for itself."""
        load_first_weights(self.stepper.model, self._spec, data_root=self._workplace.data_root)

    # Training.

    def train(
        self, experts: Collection[int], *, ramp: bool, moments: Mapping[str, Moments] | None = None
    ) -> None:
        """Own exactly these experts from now on."""
        self.stepper.model.own(experts)
        self._follow(moments, ramp=ramp)

    def step(self, sequences: Tokens, *, rate: float, ramp: bool) -> StepOutcome | None:
        """Make one optimizer step; None if rank 0 was told to stop before its end."""
        if not self.stepper.optimizer.moments:  # no expert was given to this peer yet
            self._follow(None, ramp=ramp)
        try:
            return self.stepper.step(sequences, rate=rate, stop=self._workplace.stop)
        except StepInterruptedError:
            return None

    def anchor(self) -> None:
        """Pull what is trained towards where it is now."""
        self.stepper.optimizer.anchor(self._trained())

    def sequences(self, given: Tensor | None, shape: tuple[int, int]) -> Tokens:
        """The sequences that rank 0 has given."""
        tokens = torch.empty(shape, dtype=torch.int64) if given is None else given
        self._ranks.share(tokens)
        return tokens.numpy()

    def moments(self, expert: int) -> Iterator[tuple[str, Tensor]]:
        """Yield the moments of a trained expert in their stored form, whole on rank 0."""
        for name, held in self.stepper.optimizer.moments.items():
            if expert_of(name) != expert or not held.num_steps:
                continue
            for key, tensor in moments_to_tensors({name: held}):
                with_rows = key.startswith(_WITH_ROWS)
                rows = len(self.parameters[name])
                yield key, self._ranks.collect(tensor, rows) if with_rows else tensor

    def take_moments(
        self, steps: Mapping[str, float], given: Mapping[str, Tensor]
    ) -> dict[str, Moments]:
        """This rank's rows of the moments that rank 0 has whole.

        Args:
            steps: Of each tensor, by its name.
            given: On rank 0 in the stored form, on the others nothing.
        """
        taken: dict[str, Tensor] = {}
        for name, step in steps.items():
            parameter = self.parameters[name]
            for key in (f"{kind}{name}" for kind in _WITH_ROWS):
                taken[key] = torch.empty_like(local_rows(parameter.detach()))
                self._ranks.spread(given.get(key), taken[key], len(parameter))
            taken[f"step.{name}"] = torch.tensor([step])
        return moments_from_tensors(taken)

    def _follow(self, moments: Mapping[str, Moments] | None, *, ramp: bool) -> None:
        self.stepper.optimizer.follow(self._trained(), moments=moments, ramp=ramp)

    def _trained(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.parameters.items() if p.requires_grad}

    # Checkpoints.

    def save(self, name: str, state: Mapping[str, object]) -> None:
        """Write a checkpoint.

        Raises:
            DiskFullError: there is no room for it on some rank.
        """
        snapshot = Snapshot(
            weights=weights_of(self.stepper.model),
            optimizer=dict(moments_to_tensors(self.stepper.optimizer.moments)),
            rng={"cpu": torch.get_rng_state()},
            state={**state, "processes": self._ranks.size},
        )
        self.store.save(name, snapshot)

    def resume(self, name: str, owned: Collection[int]) -> None:
        """Go on from a checkpoint."""
        found = self.store.read(name)
        load_weights(self.stepper.model, found.weights)
        moments = moments_from_tensors(found.optimizer)
        self.train(self._for_good or owned, ramp=True, moments=moments)
        torch.set_rng_state(found.rng["cpu"])

    def discard(self, name: str | None) -> None:
        """Return the moments to those of a checkpoint; fresh ones climb to the full rate."""
        stored = self.store.read(name).optimizer if name else {}
        self.stepper.optimizer.follow({}, ramp=True)
        self._follow(moments_from_tensors(stored), ramp=True)
