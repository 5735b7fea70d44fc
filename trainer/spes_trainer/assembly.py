"""Builds data and model from a job's spec, for training alone and as a peer alike."""

from __future__ import annotations

from pathlib import Path

import torch
from spes_api.job import SpesJobSpec
from spes_sync.disk import Disk

from spes_trainer.compute import Compute
from spes_trainer.data.corpus import Corpus, build_corpus
from spes_trainer.data.prepare import Preparation
from spes_trainer.data.sources import find_sources, tokenizer_path
from spes_trainer.data.tokenizer import TOKENIZER_FILE, Tokenizer, open_tokenizer, read_tokenizer
from spes_trainer.errors import config_error
from spes_trainer.model.transformer import Transformer
from spes_trainer.optim import CohortAdamW
from spes_trainer.ranks import ALONE, Ranks
from spes_trainer.step import Stepper

# Of a trainer's directory: the tokenized sources.
DATA_FOLDER = "data"


def read_corpus(spec: SpesJobSpec, *, data_root: Path, directory: Path, disk: Disk) -> Corpus:
    """Read and cut the data.

    Args:
        spec: Of the job.
        data_root: The folder in which a member mounts its datasets, each by its name.
        directory: The trainer's own, for the tokens and a copy of the tokenizer.
        disk: How files are written.

    Raises:
        ConfigError: it is missing, unreadable, too small, or has more token ids than the model.
        DiskFullError: there is no room for the tokens.
    """
    found = tokenizer_path(spec.data, data_root=data_root)
    tokenizer = open_tokenizer(spec.data.tokenizer, found)
    _require_room(tokenizer, spec)
    sources = find_sources(spec.data, data_root=data_root)
    directory.mkdir(parents=True, exist_ok=True)
    if found is not None:
        disk.write(directory / TOKENIZER_FILE, read_tokenizer(found), "tokenizer copied")
    preparation = Preparation(
        tokenizer=tokenizer,
        held_out_fraction=spec.data.held_out_fraction,
        directory=directory / DATA_FOLDER,
        disk=disk,
    )
    return build_corpus(sources, spec.data, preparation)


def _require_room(tokenizer: Tokenizer, spec: SpesJobSpec) -> None:
    vocabulary = spec.model.resolve().vocabulary
    if vocabulary < tokenizer.vocabulary:
        raise config_error(
            "spec",
            "model.config.vocabulary",
            got=f"{vocabulary:,}",
            expected=f"at least {tokenizer.vocabulary:,}",
            hint=f"the tokenizer {spec.data.tokenizer.path or 'bytes'!r} uses that many token ids",
        )


def build_stepper(
    spec: SpesJobSpec, *, document_end: int | None = None, ranks: Ranks = ALONE
) -> Stepper:
    """A model with the weights that the seed gives and an optimizer that follows nothing yet.

    The weights of a model that is upcycled are left undefined: `load_first_weights` brings them, or
    a checkpoint, or a pull.

    Args:
        spec: Of the job.
        document_end: Of the corpus.
        ranks: The processes of this peer, which all build theirs.

    Raises:
        ConfigError: a micro-batch has fewer sequences than there are ranks.
    """
    require_work_for_all(spec, ranks.size)
    compute = Compute.choose(spec.training.precision)
    model = _build_model(spec, compute, ranks)
    if spec.model.upcycle_from is None:
        model.initialize(spec.training.seed)
    return Stepper(
        model=model,
        optimizer=CohortAdamW(spec.training.optimizer, ranks),
        training=spec.training,
        compute=compute,
        document_end=document_end,
        ranks=ranks,
    )


def _build_model(spec: SpesJobSpec, compute: Compute, ranks: Ranks) -> Transformer:
    """Uninitialised; with ranks, at no time whole."""
    alone = ranks.size == 1
    with compute.device if alone else torch.device("meta"):
        model = Transformer(spec.model.resolve())
    if spec.trainer.activation_checkpointing:
        model.recompute_blocks()
    if not alone:
        from spes_trainer.parallel.sharding import shard  # takes seconds to import

        shard(model, ranks, compute)
        model.to_empty(device=compute.device)
    return model


def require_work_for_all(spec: SpesJobSpec, num_processes: int) -> None:
    """Every process of a peer computes whole sequences of each micro-batch.

    Raises:
        ConfigError: there are fewer sequences than processes.
    """
    sequences = spec.training.micro_tokens // spec.data.sequence_tokens
    if sequences < num_processes:
        raise config_error(
            "spec",
            "training.microBatchTokens",
            got=spec.training.micro_tokens,
            expected=f"at least {num_processes * spec.data.sequence_tokens}, a sequence for each "
            f"of trainer.numProcPerNode = {num_processes} processes",
            hint="raise it, or lower trainer.numProcPerNode or data.sequenceTokens",
        )
