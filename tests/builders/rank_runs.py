"""Torch learners of one and of several processes, on the same data."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from spes_api.job import SpesJobSpec
from spes_sync.client import JobTerms, OwnershipChange, SavePoint, StepPosition
from spes_sync.disk import Disk
from spes_trainer.data.reading import read_corpus
from spes_trainer.learner import TorchLearner
from spes_trainer.parallel.team import Call, team
from spes_trainer.share import Workplace

# Starting a process imports torch and FSDP2: ten seconds on an idle core, minutes on a busy one.
START_SECONDS = 300


@dataclass
class Site:
    """A machine with the data of one job, the words of `builders.nano`."""

    root: Path
    spec: SpesJobSpec
    stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def learner(self, name: str, *, processes: int = 1) -> Iterator[TorchLearner]:
        """A learner on the directory of that name; its processes are reaped when the block ends."""
        directory = self.root / name
        corpus = read_corpus(
            self.spec, data_root=self.root / "data", directory=directory, disk=Disk()
        )
        settings = self.spec.canonical_json()
        terms = JobTerms(job_uid="job", incarnation=1, peer="uni-a.0", settings_json=settings)
        workplace = Workplace(directory=directory, data_root=self.root / "data", stop=self.stop)
        if processes == 1:
            yield TorchLearner(self.spec, terms, corpus, workplace=workplace)
            return
        call = Call(
            settings=settings,
            directory=str(directory),
            data_root=str(self.root / "data"),
            document_end=corpus.document_end,
            size=processes,
        )
        with team(call, when_lost=lambda: None) as others:
            yield TorchLearner(self.spec, terms, corpus, workplace=workplace, others=others)


def own(learner: TorchLearner, *owned: int, gained=(), lost=(), **changes) -> None:
    """Change what a learner owns."""
    given = {"moments": {}, "untrained": False} | changes
    learner.own(OwnershipChange(owned=owned, gained=gained, lost=lost, **given))


def step(learner: TorchLearner, number: int):
    """The step of that number: four sequences."""
    sequences = tuple(range(4 * number, 4 * number + 4))
    return learner.step(StepPosition(round=1, sequences=sequences, global_tokens=64 * number))


def weights(learner: TorchLearner) -> dict[str, np.ndarray]:
    """Copies of all weights."""
    return {name: np.array(value) for name, value in learner.read(learner.manifest.names)}


def moments(learner: TorchLearner) -> dict[str, np.ndarray]:
    """Copies of the moments of all experts."""
    return {
        name: np.array(value)
        for expert in learner.manifest.experts
        for name, value in learner.moments(expert).items()
    }


def point(version: int, *owned: int) -> SavePoint:
    """Where a checkpoint is taken."""
    return SavePoint(
        incarnation=1,
        version=version,
        epoch=1,
        owned=dict.fromkeys(owned, 1),
        steps=4,
        tokens=256,
        global_tokens=512,
    )
