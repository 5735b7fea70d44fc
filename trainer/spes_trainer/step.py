"""One optimizer step, and evaluation: what training alone and training as a peer share."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from spes_api.job import TrainingSpec
from torch import Tensor

from spes_trainer.compute import Compute
from spes_trainer.data.token_file import Tokens
from spes_trainer.errors import DeviceMemoryError, NonFiniteError
from spes_trainer.micro_batch import MicroBatch
from spes_trainer.model.diagnose import first_non_finite
from spes_trainer.model.losses import token_losses, training_loss
from spes_trainer.model.transformer import Transformer
from spes_trainer.optim import CohortAdamW
from spes_trainer.ranks import ALONE, Ranks


class StepInterruptedError(Exception):
    """The step was told to stop between two micro-batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """Of one optimizer step."""

    loss: float
    """Mean over the labelled positions, nats per token, before the step."""
    z_loss: float
    """As the next two before its coefficient."""
    load_balance: float
    router_z_loss: float
    gradient_norm: float
    """Over everything that is trained, before clipping."""
    tokens: int
    routed: NDArray[np.int64]
    """Tokens that each expert of each layer got: a row per layer."""
    owned: frozenset[int]
    """Experts that were trained."""
    peak_bytes: int
    """Memory of all processes at its highest so far, see `Compute.memory_bytes`."""


class _Passes(NamedTuple):
    """What forward and backward over all micro-batches of a step yield on this rank."""

    sums: Tensor
    """Negative log-likelihood, z-loss, load balance, router z-loss."""
    num_labels: int
    routed: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepper:
    """A model with what it takes to train it."""

    model: Transformer
    optimizer: CohortAdamW
    training: TrainingSpec
    compute: Compute
    micro_batch: MicroBatch
    document_end: int | None = None
    """With data.documentMask: attention stays inside the documents that end with this token."""
    ranks: Ranks = ALONE
    """Each computes its part of every micro-batch; all of them make every call together."""

    def step(
        self, sequences: Tokens, *, rate: float, stop: threading.Event | None = None
    ) -> StepOutcome:
        """Accumulate the gradient over the micro-batches, clip, apply.

        Raises:
            StepInterruptedError: `stop` was set before the last micro-batch; nothing was applied.
            NonFiniteError: the loss or its gradient is NaN or infinite; nothing was applied.
            DeviceMemoryError: not even one sequence fits; nothing was applied.
        """
        passes = self._backward_that_fits(sequences, stop)
        # One wait for the device here, and one for the counts at the end.
        norm, nll_sum, z_loss, load_balance, router_z_loss = torch.cat(
            (self.optimizer.clip_norm().reshape(1), self.ranks.total(passes.sums))
        ).tolist()
        num_labels, peak_bytes = self.ranks.total(
            torch.tensor((passes.num_labels, self.compute.memory_bytes()))
        ).tolist()
        mean = nll_sum / num_labels
        if not (math.isfinite(norm) and math.isfinite(mean)):
            what = "the gradient" if math.isfinite(mean) else "the loss"
            where = first_non_finite(self.model, self._parts(sequences, self.micro_batch.sequences))
            self.optimizer.forget_gradients()
            raise NonFiniteError(what, where)
        self.optimizer.step(rate)
        return StepOutcome(
            loss=mean,
            z_loss=z_loss,
            load_balance=load_balance,
            router_z_loss=router_z_loss,
            gradient_norm=norm,
            tokens=sequences.size,
            routed=self.ranks.total(passes.routed).cpu().numpy(),
            owned=self.model.owned,
            peak_bytes=peak_bytes,
        )

    def _backward_that_fits(self, sequences: Tokens, stop: threading.Event | None) -> _Passes:
        """Backward over all micro-batches; from the first again, with smaller ones, if need be."""
        while True:
            try:
                return self._backward(sequences, stop)
            except torch.OutOfMemoryError as error:
                reason = str(error).partition(". ")[0]
            # Beyond the error, whose traceback holds the activations.
            self.optimizer.forget_gradients()
            if self.ranks.size > 1:  # the others wait for this one's part of what they compute
                raise DeviceMemoryError(
                    f"no device memory for a rank's part of {self.micro_batch.sequences} sequences "
                    f"({reason}); lower training.microBatchTokens, or set "
                    "trainer.activationCheckpointing"
                )
            self.micro_batch.shrink(reason)
            self.compute.forget_freed()

    def _backward(self, sequences: Tokens, stop: threading.Event | None) -> _Passes:
        micro_batches = self._parts(sequences, self.micro_batch.sequences)
        sums = torch.zeros(4, device=self.compute.device)
        num_labels, routed = 0, torch.zeros((), device=self.compute.device, dtype=torch.long)
        for tokens in micro_batches:
            if stop is not None and self.ranks.count(stop.is_set()):
                self.optimizer.forget_gradients()
                raise StepInterruptedError
            with self.compute.autocast():
                output = self.model(tokens, document_end=self.document_end)
            loss = training_loss(
                output,
                tokens,
                self.training.losses,
                num_micro_batches=len(micro_batches),
                ranks=self.ranks,
            )
            loss.total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            sums += torch.stack((loss.nll_sum, loss.z, loss.load_balance, loss.router_z))
            num_labels += loss.num_labels
            routed = routed + loss.routed_LE
        return _Passes(sums, num_labels, routed)

    @torch.no_grad()
    def evaluate(self, sequences: Tokens) -> float:
        """Return the mean negative log-likelihood over the labelled positions, nats per token."""
        nll_sum, num_labels = torch.zeros((), dtype=torch.float64), 0
        stand_in = self._tokens(sequences[:1])
        for tokens in self._parts(sequences, self.micro_batch.sequences):
            if not len(tokens):  # the last batch; the others gather weights with this rank
                self.model(stand_in)
                continue
            with self.compute.autocast():
                output = self.model(tokens, document_end=self.document_end)
            nll, _ = token_losses(output.logits_BSV, tokens)
            nll_sum += nll.double().sum().cpu()
            num_labels += nll.numel()
        return float(self.ranks.total(nll_sum).item()) / self.ranks.count(num_labels)

    def _parts(self, sequences: Tokens, num_sequences: int) -> tuple[Tensor, ...]:
        """This rank's part of each batch of so many."""
        batches = torch.split(self._tokens(sequences), num_sequences)
        return tuple(torch.tensor_split(b, self.ranks.size)[self.ranks.rank] for b in batches)

    def _tokens(self, sequences: Tokens) -> Tensor:
        """The int64 indices that an embedding takes."""
        return torch.from_numpy(sequences.astype(np.int64)).to(self.compute.device)
