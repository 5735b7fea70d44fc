"""Builds what a job's spec asks for: the model here, the data in `data.reading`."""

from __future__ import annotations

import torch
from spes_api.job import SpesJobSpec

from spes_trainer.compute import Compute
from spes_trainer.errors import config_error
from spes_trainer.micro_batch import MicroBatch
from spes_trainer.model.transformer import Transformer
from spes_trainer.optim import CohortAdamW
from spes_trainer.ranks import ALONE, Ranks
from spes_trainer.step import Stepper


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
        micro_batch=MicroBatch(
            sequences=spec.training.micro_tokens // spec.data.sequence_tokens,
            sequence_tokens=spec.data.sequence_tokens,
        ),
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
