"""The torch learner where every peer trains everything (FedAvg, DiLoCo, Centralised)."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from builders.nano import nano_spec, write_words
from spes_api.algorithm import AlgorithmSpec
from spes_sync.client import JobTerms, SavePoint, StepPosition
from spes_sync.disk import Disk
from spes_trainer.data.reading import read_corpus
from spes_trainer.learner import TorchLearner
from spes_trainer.share import Workplace


@pytest.fixture
def make_learner(tmp_path):
    """Learners of one job on one directory, as processes that follow each other."""
    root = write_words(tmp_path / "data")
    spec = nano_spec().model_copy(update={"algorithm": AlgorithmSpec(name="FedAvg")})
    directory = tmp_path / "uni-a.0"
    terms = JobTerms(job_uid="job", incarnation=1, peer="uni-a.0", settings_json="")

    def make() -> TorchLearner:
        corpus = read_corpus(spec, data_root=root, directory=directory, disk=Disk())
        workplace = Workplace(directory=directory, data_root=root, stop=threading.Event())
        return TorchLearner(spec, terms, corpus, workplace=workplace)

    return make


def step(learner) -> None:
    sequences = tuple(range(4))
    assert learner.step(StepPosition(round=1, sequences=sequences, global_tokens=0))


def weights(learner) -> dict[str, np.ndarray]:
    return {name: np.array(value) for name, value in learner.read(learner.manifest.names)}


def test_every_tensor_is_shared_and_trained(make_learner):
    learner = make_learner()
    assert learner.restore() is None
    assert learner.manifest.experts == ()
    assert learner.manifest.shared() == learner.manifest.tensors
    before = weights(learner)
    step(learner)
    after = weights(learner)
    assert [name for name in before if np.array_equal(before[name], after[name])] == []


def test_a_resumed_learner_trains_everything_with_its_old_moments(make_learner):
    learner = make_learner()
    learner.restore()
    step(learner)
    learner.save(
        SavePoint(incarnation=1, version=1, epoch=1, owned={}, steps=1, tokens=64, global_tokens=64)
    )
    again = make_learner()
    again.restore()
    step(learner)
    step(again)
    expected = weights(learner)
    for name, value in weights(again).items():
        assert np.array_equal(value, expected[name]), name
