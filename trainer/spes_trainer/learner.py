"""The torch side of a peer: what `spes_sync.client` drives between Join and Stop.

The driver says which experts are owned, on which sequences a step is made and at which position of
the schedule; the weights that a step starts from come through `write`. The step itself is the one
that training alone makes. Of a peer of several processes this is rank 0: what touches the model is
a command to all of them.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar, cast

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
from spes_sync.manifest import SHARED, Manifest, TensorSpec, expert_of

from spes_trainer.commands import (
    NOTHING,
    Anchor,
    Command,
    Discard,
    LoadFirstWeights,
    Nobody,
    Others,
    Read,
    ReadMoments,
    Resume,
    Save,
    Tensors,
    Train,
    Write,
)
from spes_trainer.crew import Crew
from spes_trainer.data.corpus import Corpus
from spes_trainer.errors import CheckpointError, DiskFullError, VolumeError
from spes_trainer.metrics.log import TrainingLog, peak_of
from spes_trainer.metrics.record import Place
from spes_trainer.metrics.window import PeriodicLine
from spes_trainer.schedule import Schedule
from spes_trainer.share import Share, Workplace
from spes_trainer.step import StepOutcome

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
# Prefix of stored moments: the number of steps behind a tensor.
STEP = "step."


class TorchLearner:
    """Implements `spes_sync.client.Learner`."""

    def __init__(
        self,
        spec: SpesJobSpec,
        terms: JobTerms,
        corpus: Corpus,
        *,
        workplace: Workplace,
        others: Others | None = None,
    ) -> None:
        """Start with the weights that the seed gives; experts are owned later, or all for good.

        Args:
            spec: Of the job.
            terms: What the peer was told when it joined.
            corpus: Of this process alone; other ranks are given the sequences of each step.
            workplace: Of this process.
            others: The ranks beside this one; None: there are none.
        """
        self._terms = terms
        self._spec = spec
        self._corpus = corpus
        self._workplace = workplace
        others = others or Nobody()
        self._share = Share(spec, workplace, document_end=corpus.document_end, ranks=others.ranks)
        self._crew = Crew(share=self._share, others=others)
        self._stepper = self._share.stepper
        self._schedule = Schedule.of(spec.training)
        self._order = corpus.order(seed=spec.training.seed, split=spec.data.split, peer=terms.peer)
        self._saved: SavePoint | None = None
        self._num_steps = 0
        self._log = TrainingLog(spec, workplace, peak=peak_of(self._stepper))
        self._line = PeriodicLine()
        self.manifest = Manifest(
            tuple(
                TensorSpec(
                    name=name,
                    shape=tuple(p.shape),
                    expert=SHARED if spec.algorithm.replicated else expert_of(name),
                )
                for name, p in self._share.parameters.items()
            )
        )
        self.data = DataSummary(fingerprint=corpus.fingerprint, num_sequences=corpus.num_sequences)

    def _all(self, command: Command[Result], given: Tensors = NOTHING) -> Result:
        return self._crew.run(command, given)

    # Weights.

    def read(self, names: Sequence[str]) -> Iterator[tuple[str, Array]]:
        """Yield live weights; of one process on a CPU they are views."""
        for name in names:
            yield name, self._all(Read(name=name)).numpy()

    def write(self, tensors: Iterable[tuple[str, Array]]) -> None:
        """Copy values into the live weights."""
        for name, value in tensors:
            self._all(Write(name=name), {"value": torch.tensor(value)})

    # Training.

    def own(self, change: OwnershipChange) -> None:
        """Freeze lost experts, train gained ones with what is known of their moments."""
        kept = tuple(set(change.owned).difference(change.gained))
        ramp = not change.untrained
        self._all(Train(experts=kept, ramp=ramp))  # what is lost and gained again starts anew
        given = {
            name: torch.tensor(value)
            for moments in change.moments.values()
            for name, value in moments.items()
        }
        steps = {
            name.removeprefix(STEP): float(value.item())
            for name, value in given.items()
            if name.startswith(STEP)
        }
        self._all(Train(experts=change.owned, ramp=ramp, steps=steps), given)

    def step(self, position: StepPosition) -> StepResult | None:
        """Make one optimizer step on the given sequences; None if told to stop before its end."""
        rate = self._schedule.rate(position.global_tokens + self._spec.training.batch_tokens)
        with self._log.profiled():
            started = time.monotonic()
            sequences = self._corpus.take(self._order.at(position.sequences))
            outcome = self._crew.step(sequences, rate=rate, ramp=position.global_tokens > 0)
            if outcome is None:
                return None
            slowdown = self._workplace.slowdown
            self._workplace.stop.wait((slowdown - 1) * (time.monotonic() - started))
            seconds = time.monotonic() - started
        self._note(position, outcome, rate=rate, seconds=seconds)
        return StepResult(
            loss=outcome.loss,
            tokens=outcome.tokens,
            routed_tokens=outcome.routed.sum(axis=0).tolist(),
            peak_bytes=self._stepper.compute.peak_bytes(),
        )

    def _note(
        self, position: StepPosition, outcome: StepOutcome, *, rate: float, seconds: float
    ) -> None:
        self._num_steps += 1
        place = Place(
            step=self._num_steps,
            round=position.round,
            global_tokens=position.global_tokens + outcome.tokens,
            learning_rate=rate,
            seconds=seconds,
        )
        self._line.add(self._log.write(place, outcome))

    def anchor(self) -> None:
        """Keep a copy of what is trained on every rank: optimizer.proximal pulls towards it."""
        self._all(Anchor())

    def evaluate(self, num_tokens: int) -> float:
        """Return the held-out loss of the live weights; NaN if nothing is held out."""
        sequences = self._corpus.evaluation(num_tokens)
        return self._crew.evaluate(sequences) if len(sequences) else math.nan

    def moments(self, expert: int) -> Mapping[str, Array]:
        """Return the moments of an owned expert that has been trained, else nothing."""
        handed_over = self.manifest.moments_of(expert)
        return {
            name: np.array(tensor.cpu().numpy(), dtype=np.float32)
            for name, tensor in self._all(ReadMoments(expert=expert)).items()
            if name in handed_over
        }

    def close(self) -> None:
        """Finish the training log."""
        self._line.close()
        self._log.close()

    # Checkpoints.

    def restore(self) -> SavePoint | None:
        """Load the last complete checkpoint; without one, start as a new peer.

        Raises:
            VolumeError: the checkpoint is of another job.
        """
        name = self._newest()
        if name is None:
            self._all(LoadFirstWeights())
            return None
        state = self._share.store.state(name)
        if (job := state.get("job")) != self._terms.job_uid:
            raise VolumeError(
                f"{self._workplace.directory} holds a checkpoint of another job (got {job}, "
                f"expected {self._terms.job_uid}); give each job a directory of its own"
            )
        self._saved = point = _point_from(cast("Mapping[str, Any]", state["point"]))
        self._all(Resume(name=name, owned=tuple(point.owned)))
        self._num_steps = point.steps
        logger.info("resumed version=%d steps=%d", point.version, point.steps)
        return point

    def save(self, point: SavePoint) -> None:
        """Write a checkpoint. A full disk is reported, and training goes on without one."""
        last = self._saved
        if last and (last.incarnation, last.version) == (point.incarnation, point.version):
            return  # it is the latest; writing it again would first remove it
        state = {
            "job": self._terms.job_uid,
            "model": self._stepper.model.config.model_dump(mode="json", by_alias=True),
            "tokenizer": self._spec.data.tokenizer.model_dump(mode="json", by_alias=True),
            "point": asdict(point),
        }
        try:
            self._all(Save(name=_name_of(point.version), state=state))
        except DiskFullError:
            logger.exception("checkpoint not written, training goes on version=%d", point.version)
        else:
            self._saved = point

    def judge(self, version: int, loss: float) -> None:
        """Keep the checkpoint of one of the best versions. A full disk costs no more than that."""
        try:
            self._share.store.judge(_name_of(version), loss)
        except DiskFullError:
            logger.exception("loss of a checkpoint not written version=%d", version)

    def discard(self) -> None:
        """Return the moments to those of the last checkpoint; fresh ones climb to the full rate."""
        self._all(Discard(name=self._newest()))

    def _newest(self) -> str | None:
        try:
            return self._share.store.newest()
        except CheckpointError as error:
            logger.warning("starting without a checkpoint: %s", error)
            return None


def _name_of(version: int) -> str:
    return f"round-{version:06d}"


def _point_from(stored: Mapping[str, Any]) -> SavePoint:
    owned = {int(expert): int(epoch) for expert, epoch in stored["owned"].items()}
    return SavePoint(**{**stored, "owned": owned})
