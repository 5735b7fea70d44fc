"""Builds data and model from a job's spec, for training alone and as a peer alike."""

from __future__ import annotations

from pathlib import Path

from spes_api.job import SpesJobSpec

from spes_trainer.compute import Compute
from spes_trainer.data import tokenizer
from spes_trainer.data.corpus import Corpus, build_corpus
from spes_trainer.data.documents import read_documents
from spes_trainer.errors import config_error
from spes_trainer.model.transformer import Transformer
from spes_trainer.optim import CohortAdamW
from spes_trainer.step import Stepper


def read_corpus(spec: SpesJobSpec, *, data_root: Path) -> Corpus:
    """Read and cut the data.

    Raises:
        ConfigError: it is missing, unreadable, too small, or has more token ids than the model.
    """
    vocabulary = spec.model.resolve().vocabulary
    if vocabulary < tokenizer.VOCABULARY:
        raise config_error(
            "spec",
            "model.config.vocabulary",
            got=vocabulary,
            expected=f"at least {tokenizer.VOCABULARY}",
            hint=f"the tokenizer {spec.data.tokenizer.name!r} uses that many token ids",
        )
    documents = read_documents(spec.data, data_root=data_root)
    return build_corpus(documents, spec.data, source=str(data_root))


def build_stepper(spec: SpesJobSpec) -> Stepper:
    """A model with the weights that the seed gives and an optimizer that follows nothing yet."""
    compute = Compute.choose(spec.training.precision)
    with compute.device:
        model = Transformer(spec.model.resolve())
    model.initialize(spec.training.seed)
    return Stepper(
        model=model,
        optimizer=CohortAdamW(spec.training.optimizer),
        training=spec.training,
        compute=compute,
    )
