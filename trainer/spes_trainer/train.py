"""Training alone: one process, all experts, the plain loop. Read it from top to bottom.

What a peer of a job does differently is in `learner`: it owns some experts, and the sync server
says on which sequences and from which weights it goes on. The model, the step, the schedule and the
data are the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from spes_api.job import SpesJobSpec
from spes_sync.disk import Disk

from spes_trainer.assembly import build_stepper, read_corpus
from spes_trainer.checkpoint import CheckpointStore, Snapshot
from spes_trainer.data.corpus import Corpus
from spes_trainer.errors import VolumeError
from spes_trainer.optim import moments_from_tensors, moments_to_tensors
from spes_trainer.progress import Display
from spes_trainer.schedule import Schedule
from spes_trainer.start import load_first_weights
from spes_trainer.step import Stepper
from spes_trainer.weights import load_weights, weights_of

# Names this process where a peer would give its id.
ALONE = "alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class AloneOptions:
    """Where training alone reads and writes."""

    directory: Path
    data_root: Path
    slowdown: float = 1.0
    """Step time is multiplied by this, by sleeping."""
    disk: Disk = field(default_factory=Disk)
    clock: Callable[[], float] = time.monotonic
    """Seconds, from any start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AloneResult:
    """How a run ended."""

    finished: bool
    """False: it was told to stop; it goes on from its checkpoint."""
    steps: int
    tokens: int
    seconds: float
    """Of this process."""
    first_loss: float | None
    """Held-out, of the initial weights; None for a resumed run or without held-out text."""
    held_out_loss: float | None
    unigram_loss: float | None

    def to_json(self) -> dict[str, object]:
        """As `summary.json` keeps it."""
        return {
            "finished": self.finished,
            "steps": self.steps,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "heldOutLoss": {"first": self.first_loss, "last": self.held_out_loss},
            "unigramLoss": self.unigram_loss,
        }


def train_alone(
    spec: SpesJobSpec, options: AloneOptions, *, display: Display, stop: threading.Event
) -> AloneResult:
    """Train until maxTokens, resuming where the directory's last checkpoint was taken.

    Raises:
        ConfigError: the data cannot be used.
        VolumeError: the directory holds another run or only damaged checkpoints.
        NonFiniteError: a step gave NaN or infinity.
    """
    # Data: one global order of all sequences.
    corpus = read_corpus(
        spec, data_root=options.data_root, directory=options.directory, disk=options.disk
    )
    training, sync = spec.training, spec.sync
    order = corpus.order(seed=training.seed, split=spec.data.split, peer=ALONE)
    sequences_per_step = training.batch_tokens // spec.data.sequence_tokens
    evaluation = corpus.evaluation(training.evaluation.tokens)

    # Model and optimizer: every expert is owned.
    stepper = build_stepper(spec, document_end=corpus.document_end)
    stepper.optimizer.follow(dict(stepper.model.named_parameters()), ramp=False)
    schedule = Schedule.of(training)

    # Resume: weights, moments, random state and position together, or nothing.
    store = CheckpointStore(
        options.directory, keep_last=spec.checkpoint.keep_last, disk=options.disk
    )
    identity = _identity(spec, corpus)
    step = _restore(store, stepper, identity)
    if step == 0:
        load_first_weights(stepper.model, spec, data_root=options.data_root)
    first_loss = held_out_loss = None
    if len(evaluation):
        held_out_loss = stepper.evaluate(evaluation)
        first_loss = None if step else held_out_loss
    unigram_loss = corpus.unigram_loss if len(evaluation) else None
    display.say(_opening(corpus, step * training.batch_tokens, held_out_loss))

    # Rounds end every H steps or T seconds, whichever comes first, as they do for a peer.
    started = round_started = options.clock()
    num_steps = -(-training.max_tokens // training.batch_tokens)
    rounds = steps_in_round = 0
    while step < num_steps and not stop.is_set():
        step_started = options.clock()
        first = step * sequences_per_step
        sequences = corpus.take(order.at(range(first, first + sequences_per_step)))
        rate = schedule.rate((step + 1) * training.batch_tokens)
        outcome = stepper.step(sequences, rate=rate)
        step, steps_in_round = step + 1, steps_in_round + 1
        display.step(tokens=step * training.batch_tokens, loss=outcome.loss)
        stop.wait((options.slowdown - 1) * (options.clock() - step_started))

        seconds = options.clock() - round_started
        full = sync.every_steps is not None and steps_in_round >= sync.every_steps
        due = sync.every_seconds is not None and seconds >= sync.every_seconds
        if not (full or due or step == num_steps or stop.is_set()):
            continue
        rounds += 1
        ending = step == num_steps or stop.is_set()
        if len(evaluation) and (ending or rounds % training.evaluation.every_rounds == 0):
            held_out_loss = stepper.evaluate(evaluation)
        if ending or rounds % spec.checkpoint.every_rounds == 0:
            store.save(f"step-{step:08d}", _snapshot(stepper, identity, step))
        display.say(
            f"step {step:6d}  tokens {step * training.batch_tokens:,}  loss {outcome.loss:.4f}  "
            f"held-out {_loss(held_out_loss)}  rate {rate:.2e}  "
            f"{steps_in_round * training.batch_tokens / seconds:,.0f} tokens/s"
        )
        round_started, steps_in_round = options.clock(), 0

    return AloneResult(
        finished=step >= num_steps,
        steps=step,
        tokens=step * training.batch_tokens,
        seconds=options.clock() - started,
        first_loss=first_loss,
        held_out_loss=held_out_loss,
        unigram_loss=unigram_loss,
    )


def _identity(spec: SpesJobSpec, corpus: Corpus) -> dict[str, object]:
    """What must not change between a checkpoint and its resume."""
    return {
        "run": ALONE,
        "model": spec.model.resolve().model_dump(mode="json", by_alias=True),
        "data": corpus.fingerprint,
        "tokenizer": spec.data.tokenizer.model_dump(mode="json", by_alias=True),
        "seed": spec.training.seed,
        "batchTokens": spec.training.batch_tokens,
    }


def _restore(store: CheckpointStore, stepper: Stepper, identity: Mapping[str, object]) -> int:
    """Load the last checkpoint; return the steps that it has behind it."""
    found = store.load()
    if found is None:
        return 0
    for key, expected in identity.items():
        if found.state.get(key) != expected:
            raise VolumeError(
                f"the checkpoint is of another run: {key} is {found.state.get(key)!r} (expected "
                f"{expected!r}); choose another --dir or restore what the run began with"
            )
    load_weights(stepper.model, found.weights)
    stepper.optimizer.follow(
        dict(stepper.model.named_parameters()),
        moments=moments_from_tensors(found.optimizer),
        ramp=False,
    )
    torch.set_rng_state(found.rng["cpu"])
    return int(str(found.state["step"]))


def _snapshot(stepper: Stepper, identity: Mapping[str, object], step: int) -> Snapshot:
    return Snapshot(
        weights=weights_of(stepper.model),
        optimizer=dict(moments_to_tensors(stepper.optimizer.moments)),
        rng={"cpu": torch.get_rng_state()},
        state={**identity, "step": step},
    )


def _opening(corpus: Corpus, tokens: int, held_out_loss: float | None) -> str:
    start = f"resumed at {tokens:,} tokens" if tokens else "started"
    return (
        f"{start}: {corpus.num_sequences:,} sequences to train on; held-out "
        f"{_loss(held_out_loss)}, unigram {corpus.unigram_loss:.4f} nats per token"
    )


def _loss(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
