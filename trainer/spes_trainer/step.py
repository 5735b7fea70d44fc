"""One optimizer step, and evaluation: what training alone and training as a peer share."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from spes_api.job import TrainingSpec
from torch import Tensor

from spes_trainer.compute import Compute
from spes_trainer.data.token_file import Tokens
from spes_trainer.errors import NonFiniteError
from spes_trainer.model.diagnose import first_non_finite
from spes_trainer.model.losses import token_losses, training_loss
from spes_trainer.model.transformer import Transformer
from spes_trainer.optim import CohortAdamW


class StepInterruptedError(Exception):
    """The step was told to stop between two micro-batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """Of one optimizer step."""

    loss: float
    """Mean over the labelled positions, nats per token, before the step."""
    tokens: int
    routed: NDArray[np.int64]
    """Tokens that each expert index got, summed over the layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepper:
    """A model with what it takes to train it."""

    model: Transformer
    optimizer: CohortAdamW
    training: TrainingSpec
    compute: Compute
    document_end: int | None = None
    """With data.documentMask: attention stays inside the documents that end with this token."""

    def step(
        self, sequences: Tokens, *, rate: float, stop: threading.Event | None = None
    ) -> StepOutcome:
        """Accumulate the gradient over the micro-batches, clip, apply.

        Raises:
            StepInterruptedError: `stop` was set before the last micro-batch; nothing was applied.
            NonFiniteError: the loss or its gradient is NaN or infinite; nothing was applied.
        """
        per_micro_batch = self.training.micro_tokens // sequences.shape[1]
        micro_batches = _batches(sequences, per_micro_batch, self.compute.device)
        nll_sum = torch.zeros((), device=self.compute.device)
        num_labels, routed = 0, torch.zeros((), device=self.compute.device, dtype=torch.long)
        for tokens in micro_batches:
            if stop is not None and stop.is_set():
                self.optimizer.forget_gradients()
                raise StepInterruptedError
            with self.compute.autocast():
                output = self.model(tokens, document_end=self.document_end)
            loss = training_loss(
                output, tokens, self.training.losses, num_micro_batches=len(micro_batches)
            )
            loss.total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            nll_sum += loss.nll_sum
            num_labels += loss.num_labels
            routed = routed + loss.routed_E
        norm = float(self.optimizer.clip_norm().item())
        mean = float(nll_sum.item()) / num_labels
        if not (math.isfinite(norm) and math.isfinite(mean)):
            what = "the gradient" if math.isfinite(mean) else "the loss"
            where = first_non_finite(self.model, micro_batches)
            self.optimizer.forget_gradients()
            raise NonFiniteError(what, where)
        self.optimizer.step(rate)
        return StepOutcome(loss=mean, tokens=sequences.size, routed=routed.cpu().numpy())

    @torch.no_grad()
    def evaluate(self, sequences: Tokens) -> float:
        """Return the mean negative log-likelihood over the labelled positions, nats per token."""
        nll_sum, num_labels = 0.0, 0
        per_batch = max(1, self.training.micro_tokens // sequences.shape[1])
        for tokens in _batches(sequences, per_batch, self.compute.device):
            with self.compute.autocast():
                output = self.model(tokens, document_end=self.document_end)
            nll, _ = token_losses(output.logits_BSV, tokens)
            nll_sum += float(nll.double().sum().item())
            num_labels += nll.numel()
        return nll_sum / num_labels


def _batches(sequences: Tokens, num_sequences: int, device: torch.device) -> tuple[Tensor, ...]:
    """Batches of so many sequences, as the int64 indices that an embedding takes."""
    tokens = torch.from_numpy(sequences.astype(np.int64)).to(device)
    return torch.split(tokens, num_sequences)
