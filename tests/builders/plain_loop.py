"""What a peer that trains everything must equal: training without a server."""

from __future__ import annotations

import torch
from builders.nano import follow
from spes_sync.disk import Disk
from spes_trainer.assembly import build_stepper
from spes_trainer.data.reading import read_corpus
from spes_trainer.schedule import Schedule


def plain_loop(spec, data_root, *, every: int | None = None) -> dict[str, torch.Tensor]:
    """Training alone; with `every`, x = base + (x - base) every so many steps."""
    directory = data_root.with_name("alone")
    corpus = read_corpus(spec, data_root=data_root, directory=directory, disk=Disk())
    stepper = build_stepper(spec)
    follow(stepper, range(4))
    order = corpus.order(seed=0, split="Disjoint", peer="")
    base = {n: p.detach().clone() for n, p in stepper.model.named_parameters()}
    for step in range(spec.training.max_tokens // 64):
        rate = Schedule.of(spec.training).rate((step + 1) * 64)
        stepper.step(corpus.take(order.at(range(4 * step, 4 * step + 4))), rate=rate)
        if every and (step + 1) % every == 0:
            for name, parameter in stepper.model.named_parameters():
                parameter.data = base[name] + (parameter.data - base[name])
                base[name] = parameter.detach().clone()
    return {n: p.detach() for n, p in stepper.model.named_parameters()}
