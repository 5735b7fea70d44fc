"""Training alone: one trainer, all experts, the plain loop. Read it from top to bottom.

What a peer of a job does differently is in `learner`: it owns some experts, and the sync server
says on which sequences and from which weights it goes on. The model, the step, the schedule, the
data and the processes that share them are the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from spes_api.job import SpesJobSpec, SyncSpec
from spes_sync.disk import Disk

from spes_trainer.commands import LoadFirstWeights, Resume, Save, Train
from spes_trainer.crew import Crew, crew_of
from spes_trainer.data.corpus import Corpus
from spes_trainer.data.reading import read_corpus
from spes_trainer.errors import VolumeError
from spes_trainer.metrics.log import TrainingLog, peak_of
from spes_trainer.metrics.record import Place
from spes_trainer.metrics.window import Window
from spes_trainer.progress import Display
from spes_trainer.schedule import Schedule
from spes_trainer.share import Workplace

# Names this trainer where a peer would give its id.
ALONE = "alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class AloneOptions:
    """Where training alone reads and writes."""

    directory: Path
    data_root: Path
    slowdown: float = 1.0
    """Step time is multiplied by this, by sleeping."""
    profile_steps: int = 0
    """Steps that are recorded by torch's profiler; 0: none."""
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
    training = spec.training
    order = corpus.order(seed=training.seed, split=spec.data.split, peer=ALONE)
    sequences_per_step = training.batch_tokens // spec.data.sequence_tokens
    evaluation = corpus.evaluation(training.evaluation.tokens)
    schedule = Schedule.of(training)

    with ExitStack() as at_end:
        # Model and optimizer, on as many processes as the job wants. Every expert is owned.
        workplace = Workplace(
            directory=options.directory,
            data_root=options.data_root,
            stop=threading.Event(),  # a step that has begun is finished
            profile_steps=options.profile_steps,
            disk=options.disk,
        )
        crew = at_end.enter_context(crew_of(spec, workplace, document_end=corpus.document_end))

        # Resume: weights, moments, random state and position together, or nothing.
        identity = _identity(spec, corpus)
        step = _restore(crew, identity, experts=tuple(range(spec.model.resolve().num_experts)))
        first_loss = held_out_loss = None
        if len(evaluation):
            held_out_loss = crew.evaluate(evaluation)
            first_loss = None if step else held_out_loss
        unigram_loss = corpus.unigram_loss if len(evaluation) else None
        display.say(_opening(corpus, step * training.batch_tokens, held_out_loss))

        # What is written down of every step.
        peak = peak_of(crew.share.stepper)
        log = TrainingLog(spec, workplace, peak=peak, say=display.say)
        at_end.callback(log.close)

        # Rounds end every H steps or T seconds, whichever comes first, as they do for a peer.
        started = round_started = options.clock()
        num_steps = -(-training.max_tokens // training.batch_tokens)
        rounds, window = 0, Window()
        while step < num_steps and not stop.is_set():
            tokens = (step + 1) * training.batch_tokens
            rate = schedule.rate(tokens)
            with log.profiled():
                step_started = options.clock()
                first = step * sequences_per_step
                sequences = corpus.take(order.at(range(first, first + sequences_per_step)))
                outcome = crew.step(sequences, rate=rate, ramp=False)
                assert outcome is not None, "nobody stops a step"
                stop.wait((options.slowdown - 1) * (options.clock() - step_started))
                now = options.clock()
            step += 1
            display.step(tokens=tokens, loss=outcome.loss)
            place = Place(
                step=step,
                round=rounds + 1,
                global_tokens=tokens,
                learning_rate=rate,
                seconds=now - step_started,
            )
            window.add(log.write(place, outcome))
            seconds = now - round_started
            ending = step == num_steps or stop.is_set()
            if not (ending or _over(spec.sync, window.num_steps, seconds)):
                continue
            rounds += 1
            if len(evaluation) and (ending or rounds % training.evaluation.every_rounds == 0):
                held_out_loss = crew.evaluate(evaluation)
            if ending or rounds % spec.checkpoint.every_rounds == 0:
                crew.run(Save(name=f"step-{step:08d}", state=identity | {"step": step}))
            display.say(
                f"step {step:6d}  tokens {tokens:,}  loss {outcome.loss:.4f}  "
                f"held-out {_loss(held_out_loss)}  rate {rate:.2e}  "
                f"{window.num_steps * training.batch_tokens / seconds:,.0f} tokens/s  "
                f"gradient norm {outcome.gradient_norm:.2f}  experts used {_used(window)}"
            )
            round_started, window = options.clock(), Window()

    return AloneResult(
        finished=step >= num_steps,
        steps=step,
        tokens=step * training.batch_tokens,
        seconds=options.clock() - started,
        first_loss=first_loss,
        held_out_loss=held_out_loss,
        unigram_loss=unigram_loss,
    )


def _over(sync: SyncSpec, num_steps: int, seconds: float) -> bool:
    """Whether a round of so many steps and seconds ends."""
    full = sync.every_steps is not None and num_steps >= sync.every_steps
    return full or (sync.every_seconds is not None and seconds >= sync.every_seconds)


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


def _restore(crew: Crew, identity: Mapping[str, object], *, experts: tuple[int, ...]) -> int:
    """Load the last checkpoint, or start anew; return the steps that are done."""
    store = crew.share.store
    name = store.newest()
    if name is None:
        crew.run(Train(experts=experts, ramp=False))
        crew.run(LoadFirstWeights())
        return 0
    state = store.state(name)
    for key, expected in identity.items():
        if state.get(key) != expected:
            raise VolumeError(
                f"the checkpoint is of another run: {key} is {state.get(key)!r} (expected "
                f"{expected!r}); choose another --dir or restore what the run began with"
            )
    crew.run(Resume(name=name, owned=experts))
    return int(str(state["step"]))


def _opening(corpus: Corpus, tokens: int, held_out_loss: float | None) -> str:
    start = f"resumed at {tokens:,} tokens" if tokens else "started"
    return (
        f"{start}: {corpus.num_sequences:,} sequences to train on; held-out "
        f"{_loss(held_out_loss)}, unigram {corpus.unigram_loss:.4f} nats per token"
    )


def _used(window: Window) -> str:
    load = window.load()
    return f"{load.utilisation:.0%}" + (f", {len(load.dead)} dead" if load.dead else "")


def _loss(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
