"""AdamW over the tensors that this peer trains now.

Which those are changes between rounds: experts move. Lost tensors leave with their moments. Gained
ones form a cohort: their moments start at zero with their own bias correction, and their rate,
decay included, climbs over `RAMP_STEPS` steps, because Adam's first steps from zero moments are as
large as the rate allows whatever the gradient. Tensors that bring their moments along go on where
those were.

A process works on the rows that it holds of each tensor; only the gradient norm is over all ranks.

Written on torch's fused kernel, not on `torch.optim`: cohorts come and go here, and the first
optimizer that `torch.optim` makes imports a compiler, which takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import torch
from spes_api.job import OptimizerSpec
from torch import Tensor, nn

from spes_trainer.ranks import ALONE, Ranks
from spes_trainer.rows import local_rows

RAMP_STEPS = 100
# Added to the gradient norm before dividing by it, as released.
CLIP_EPSILON = 1e-6


@dataclass(slots=True, kw_only=True)
class Moments:
    """What AdamW knows about the rows that are here; changes in place with every step."""

    exp_avg: Tensor
    exp_avg_sq: Tensor
    step: Tensor
    """A float32 scalar, as the kernel wants it."""
    ramp: int
    """Steps of the ramp that are done."""

    @classmethod
    def fresh(cls, parameter: Tensor, *, ramp: int) -> Self:
        """Of a tensor that was never trained here."""
        return cls(
            exp_avg=torch.zeros_like(parameter),
            exp_avg_sq=torch.zeros_like(parameter),
            step=torch.zeros((), device=parameter.device),
            ramp=ramp,
        )

    @property
    def num_steps(self) -> int:
        """Steps that the moments have behind them."""
        return int(self.step.item())

    def to(self, device: torch.device) -> Moments:
        """A copy of its own on a device."""
        return Moments(
            exp_avg=self.exp_avg.to(device, copy=True),
            exp_avg_sq=self.exp_avg_sq.to(device, copy=True),
            step=self.step.to(device, copy=True),
            ramp=self.ramp,
        )


class CohortAdamW:
    """Decoupled decay on every trained tensor; the gradient norm is over those alone."""

    def __init__(self, spec: OptimizerSpec, ranks: Ranks = ALONE) -> None:
        """Train nothing until `follow`."""
        self._ranks = ranks
        self._spec = spec
        self._trained: dict[str, nn.Parameter] = {}
        self._moments: dict[str, Moments] = {}
        self._anchors: dict[str, Tensor] = {}

    @property
    def moments(self) -> Mapping[str, Moments]:
        """The live moments of every trained tensor, by name."""
        return self._moments

    def follow(
        self,
        trained: Mapping[str, nn.Parameter],
        *,
        moments: Mapping[str, Moments] | None = None,
        ramp: bool,
    ) -> None:
        """Train exactly these tensors from now on; what is kept keeps its moments.

        Args:
            trained: By name.
            moments: Copied in, for gained tensors and in place of what kept ones have.
            ramp: Whether gained tensors without moments climb to the full rate. At the very start
                the schedule's warm-up does that for all of them.
        """
        for name in self._trained.keys() - trained.keys():
            self._trained[name].grad = None
            del self._moments[name]
        brought = moments or {}
        self._trained = dict(sorted(trained.items()))
        start = 0 if ramp else RAMP_STEPS
        for name, parameter in self._trained.items():
            if name in brought:
                self._moments[name] = brought[name].to(parameter.device)
            elif name not in self._moments:
                self._moments[name] = Moments.fresh(local_rows(parameter.detach()), ramp=start)

    @torch.no_grad()
    def anchor(self, parameters: Mapping[str, nn.Parameter]) -> None:
        """Pull these towards where they are now, while they are trained."""
        self._anchors = {name: local_rows(p).clone() for name, p in parameters.items()}

    def clip_norm(self) -> Tensor:
        """Return the norm of all gradients, then scale them so that it is at most the limit.

        The proximal term (FedProx, arXiv 1812.06127) is part of the gradient.
        """
        self._add_proximal_term()
        grads = [local_rows(p.grad) for p in self._trained.values() if p.grad is not None]
        norm = self._ranks.norm(torch.nn.utils.get_total_norm(grads, foreach=True))
        torch._foreach_mul_(grads, (self._spec.clip_norm / (norm + CLIP_EPSILON)).clamp(max=1.0))
        return norm

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Apply the gradients and forget them."""
        for ramp, names in self._cohorts().items():
            held = [self._moments[name] for name in names]
            parameters = [self._trained[name] for name in names]
            grads = [
                local_rows(p.grad) for p in parameters if p.grad is not None
            ]  # all, by `_cohorts`
            steps = [moments.step for moments in held]
            torch._foreach_add_(steps, 1)
            torch._fused_adamw_(
                [local_rows(parameter) for parameter in parameters],
                grads,
                [moments.exp_avg for moments in held],
                [moments.exp_avg_sq for moments in held],
                [],
                steps,
                lr=rate * min(1.0, (ramp + 1) / RAMP_STEPS),
                beta1=self._spec.betas[0],
                beta2=self._spec.betas[1],
                weight_decay=self._spec.weight_decay,
                eps=self._spec.epsilon,
                amsgrad=False,
                maximize=False,
            )
            for moments in held:
                moments.ramp = min(ramp + 1, RAMP_STEPS)
        self.forget_gradients()

    def forget_gradients(self) -> None:
        """Drop what `backward` has left."""
        for parameter in self._trained.values():
            parameter.grad = None

    @torch.no_grad()
    def _add_proximal_term(self) -> None:
        for name, anchor in self._anchors.items():
            parameter = self._trained.get(name)
            if parameter is not None and parameter.grad is not None:
                strayed = local_rows(parameter) - anchor
                local_rows(parameter.grad).add_(strayed, alpha=self._spec.proximal)

    def _cohorts(self) -> dict[int, list[str]]:
        """Names of the tensors with a gradient, by their progress on the ramp."""
        cohorts: dict[int, list[str]] = {}
        for name, parameter in self._trained.items():
            if parameter.grad is not None:
                cohorts.setdefault(self._moments[name].ramp, []).append(name)
        return cohorts


def moments_to_tensors(moments: Mapping[str, Moments]) -> Iterator[tuple[str, Tensor]]:
    """Yield moments as named tensors, the form in which they are stored."""
    for name, held in moments.items():
        yield f"exp_avg.{name}", held.exp_avg
        yield f"exp_avg_sq.{name}", held.exp_avg_sq
        yield f"step.{name}", held.step.reshape(1)
        yield f"ramp.{name}", torch.tensor([held.ramp])


def moments_from_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Moments]:
    """Return moments from their stored form.

    Those that a peer hands over come without a ramp: they are as far on it as they have steps.
    """
    names = [key.removeprefix("exp_avg.") for key in tensors if key.startswith("exp_avg.")]
    found = {}
    for name in names:
        step = tensors[f"step.{name}"].reshape(())
        ramp = int(tensors[f"ramp.{name}"].item()) if f"ramp.{name}" in tensors else int(step)
        found[name] = Moments(
            exp_avg=tensors[f"exp_avg.{name}"],
            exp_avg_sq=tensors[f"exp_avg_sq.{name}"],
            step=step,
            ramp=min(ramp, RAMP_STEPS),
        )
    return found
