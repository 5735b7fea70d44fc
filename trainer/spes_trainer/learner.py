"""The torch side of a peer: what `spes_sync.client` drives between Join and Stop.

The driver says which experts are owned, on which sequences a step is made and at which position of
the schedule; the weights that a step starts from come through `write`. The step itself is the one
that training alone makes.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from spes_api.job import SpesJobSpec
from spes_sync.client import (
    DataSummary,
    JobTerms,
    OwnershipChange,
    SavePoint,
    StepPosition,
    StepResult,
)
from spes_sync.codec import Array
from spes_sync.disk import Disk
from spes_sync.manifest import SHARED, Manifest, TensorSpec, expert_of
from torch import Tensor, nn

from spes_trainer.assembly import build_stepper
from spes_trainer.checkpoint import CheckpointStore, Snapshot
from spes_trainer.data.corpus import Corpus
from spes_trainer.errors import CheckpointError, DiskFullError, VolumeError
from spes_trainer.optim import Moments, moments_from_tensors, moments_to_tensors
from spes_trainer.schedule import Schedule
from spes_trainer.start import load_first_weights
from spes_trainer.step import StepInterruptedError
from spes_trainer.weights import load_weights, weights_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """What a learner has on this machine."""

    directory: Path
    data_root: Path
    """The folder that holds each dataset by name."""
    stop: threading.Event
    """Set on SIGTERM: an unfinished step is dropped."""
    slowdown: float = 1.0
    """Step time is multiplied by this, by sleeping."""
    disk: Disk = field(default_factory=Disk)


class TorchLearner:
    """Implements `spes_sync.client.Learner`."""

    def __init__(
        self, spec: SpesJobSpec, terms: JobTerms, corpus: Corpus, *, workplace: Workplace
    ) -> None:
        """Start with the weights that the seed gives; experts are owned later, or all for good."""
        self._terms = terms
        self._spec = spec
        self._corpus = corpus
        self._workplace = workplace
        self._stepper = build_stepper(spec, document_end=corpus.document_end)
        replicated, num_experts = spec.algorithm.replicated, spec.model.resolve().num_experts
        self._for_good = tuple(range(num_experts)) if replicated else ()
        self._stepper.model.own(self._for_good)
        self._parameters: dict[str, nn.Parameter] = dict(self._stepper.model.named_parameters())
        self._schedule = Schedule.of(spec.training)
        self._order = corpus.order(seed=spec.training.seed, split=spec.data.split, peer=terms.peer)
        self._store = CheckpointStore(
            workplace.directory, keep_last=spec.checkpoint.keep_last, disk=workplace.disk
        )
        self._saved: SavePoint | None = None
        self.manifest = Manifest(
            tuple(
                TensorSpec(
                    name=name,
                    shape=tuple(p.shape),
                    expert=SHARED if replicated else expert_of(name),
                )
                for name, p in self._parameters.items()
            )
        )
        self.data = DataSummary(fingerprint=corpus.fingerprint, num_sequences=corpus.num_sequences)

    # Weights.

    def read(self, names: Sequence[str]) -> Iterator[tuple[str, Array]]:
        """Yield live weights; on a CPU they are views."""
        for name in names:
            yield name, self._parameters[name].detach().cpu().numpy()

    @torch.no_grad()
    def write(self, tensors: Iterable[tuple[str, Array]]) -> None:
        """Copy values into the live weights."""
        for name, value in tensors:
            self._parameters[name].copy_(torch.tensor(value))

    # Training.

    def own(self, change: OwnershipChange) -> None:
        """Freeze lost experts, train gained ones with what is known of their moments."""
        kept = set(change.owned).difference(change.gained)
        self._stepper.model.own(kept)  # an expert that was lost and is gained again starts anew
        self._follow({}, ramp=not change.untrained)
        self._stepper.model.own(change.owned)
        tensors = {
            name: torch.tensor(value)
            for moments in change.moments.values()
            for name, value in moments.items()
        }
        self._follow(moments_from_tensors(tensors), ramp=not change.untrained)

    def step(self, position: StepPosition) -> StepResult | None:
        """Make one optimizer step on the given sequences; None if told to stop before its end."""
        started, stop = time.monotonic(), self._workplace.stop
        if not self._stepper.optimizer.moments:  # no expert was given to this peer yet
            self._follow({}, ramp=position.global_tokens > 0)
        rate = self._schedule.rate(position.global_tokens + self._spec.training.batch_tokens)
        sequences = self._corpus.take(self._order.at(position.sequences))
        try:
            outcome = self._stepper.step(sequences, rate=rate, stop=stop)
        except StepInterruptedError:
            return None
        stop.wait((self._workplace.slowdown - 1) * (time.monotonic() - started))
        return StepResult(
            loss=outcome.loss,
            tokens=outcome.tokens,
            routed_tokens=outcome.routed.tolist(),
            peak_bytes=self._stepper.compute.peak_bytes(),
        )

    def evaluate(self, num_tokens: int) -> float:
        """Return the held-out loss of the live weights; NaN if nothing is held out."""
        sequences = self._corpus.evaluation(num_tokens)
        return self._stepper.evaluate(sequences) if len(sequences) else math.nan

    def moments(self, expert: int) -> Mapping[str, Array]:
        """Return the moments of an owned expert that has been trained, else nothing."""
        held = {
            name: moments
            for name, moments in self._stepper.optimizer.moments.items()
            if expert_of(name) == expert and moments.num_steps
        }
        handed_over = self.manifest.moments_of(expert)
        return {
            name: np.array(tensor.cpu().numpy(), dtype=np.float32)
            for name, tensor in moments_to_tensors(held)
            if name in handed_over
        }

    def _follow(self, moments: Mapping[str, Moments], *, ramp: bool) -> None:
        trained = {name: p for name, p in self._parameters.items() if p.requires_grad}
        self._stepper.optimizer.follow(trained, moments=moments, ramp=ramp)

    # Checkpoints.

    def restore(self) -> SavePoint | None:
        """Load the last complete checkpoint; without one, start as a new peer.

        Raises:
            VolumeError: the checkpoint is of another job.
        """
        found = self._load()
        if found is None:
            load_first_weights(self._stepper.model, self._spec, data_root=self._workplace.data_root)
            return None
        if (job := found.state.get("job")) != self._terms.job_uid:
            raise VolumeError(
                f"{self._workplace.directory} holds a checkpoint of another job (got {job}, "
                f"expected {self._terms.job_uid}); give each job a directory of its own"
            )
        self._saved = point = _point_from(cast("Mapping[str, Any]", found.state["point"]))
        load_weights(self._stepper.model, found.weights)
        self._stepper.model.own(self._for_good or point.owned)
        self._follow(moments_from_tensors(found.optimizer), ramp=True)
        torch.set_rng_state(found.rng["cpu"])
        logger.info("resumed version=%d steps=%d", point.version, point.steps)
        return point

    def save(self, point: SavePoint) -> None:
        """Write a checkpoint. A full disk is reported, and training goes on without one."""
        last = self._saved
        if last and (last.incarnation, last.version) == (point.incarnation, point.version):
            return  # it is the latest; writing it again would first remove it
        snapshot = Snapshot(
            weights=weights_of(self._stepper.model),
            optimizer=dict(moments_to_tensors(self._stepper.optimizer.moments)),
            rng={"cpu": torch.get_rng_state()},
            state={
                "job": self._terms.job_uid,
                "model": self._stepper.model.config.model_dump(mode="json", by_alias=True),
                "tokenizer": self._spec.data.tokenizer.model_dump(mode="json", by_alias=True),
                "point": asdict(point),
            },
        )
        try:
            self._store.save(f"round-{point.version:06d}", snapshot)
        except DiskFullError:
            logger.exception("checkpoint not written, training goes on version=%d", point.version)
        else:
            self._saved = point

    def discard(self) -> None:
        """Return the moments to those of the last checkpoint; fresh ones climb to the full rate."""
        found = self._load()
        stored: Mapping[str, Tensor] = found.optimizer if found else {}
        self._stepper.optimizer.follow({}, ramp=True)
        self._follow(moments_from_tensors(stored), ramp=True)

    def _load(self) -> Snapshot | None:
        try:
            return self._store.load()
        except CheckpointError as error:
            logger.warning("starting without a checkpoint: %s", error)
            return None


def _point_from(stored: Mapping[str, Any]) -> SavePoint:
    owned = {int(expert): int(epoch) for expert, epoch in stored["owned"].items()}
    return SavePoint(**{**stored, "owned": owned})
